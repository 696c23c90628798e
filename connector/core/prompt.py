"""What both legs of a request have to agree on before blocks of the one serve the other."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Prompt:
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
    read = array("q", token_ids[: num_tokens - 1])
    return Prompt(num_tokens, hashlib.blake2b(read.tobytes(), digest_size=16).hexdigest())
