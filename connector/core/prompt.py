"""What both legs of a request have to agree on before blocks of the one serve the other."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple


class Prompt(NamedTuple):
    """Names a prompt.

    Args:
        num_tokens: as the router sent it.
        digest: of its tokens; None where it consists of embeddings.
    """

    num_tokens: int
    digest: str | None


def prompt_of(num_tokens: int, token_ids: Sequence[int] | None) -> Prompt:
    """The name of a prompt of ``num_tokens``.

    The digest is of those whose cache a load may read, all but the last. So it does not matter
    whether a producer has dropped that one.
    """
    if token_ids is None:
        return Prompt(num_tokens, None)
    num_read = num_tokens - 1
    read = token_ids if len(token_ids) == num_read else token_ids[:num_read]
    packed = struct.pack(f"<{len(read)}i", *read)  # in the way of every request, so in C alone
    return Prompt(num_tokens, hashlib.sha256(packed).hexdigest())
