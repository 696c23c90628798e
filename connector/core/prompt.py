"""What both legs of a request have to agree on before blocks of the one serve the other."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

_COUNTED = re.compile(r"(.*:)?renderer\d+-mm-\d+-")


class Feature(NamedTuple):
    """An image, a recording or the like in a prompt.

    Args:
        identifier: by its contents, as vLLM has it.
        offset: of its first token.
        length: in tokens.
    """

    identifier: str
    offset: int
    length: int


class Prompt(NamedTuple):
    """Names a prompt.

    Args:
        num_tokens: as the router sent it.
        digest: of all else that its cache depends on.
    """

    num_tokens: int
    digest: str


def prompt_of(
    num_tokens: int,
    token_ids: Sequence[int] | None,
    features: Sequence[Feature] = (),
    adapter: str | None = None,
    embeddings: memoryview | None = None,
) -> Prompt:
    """The name of a prompt of ``num_tokens``.

    The digest is of those whose cache a load may read, all but the last. So it does not matter
    whether a producer has dropped that one.

    Args:
        num_tokens: as the router sent it.
        token_ids: None where it consists of embeddings alone.
        features: in the order of the prompt.
        adapter: name of the LoRA adapter. Its path may differ from machine to machine.
        embeddings: the bytes of those that the load may read.
    """
    packed = b""
    if token_ids is not None:
        num_read = num_tokens - 1
        read = token_ids if len(token_ids) == num_read else token_ids[:num_read]
        packed = struct.pack(f"<{len(read)}i", *read)  # in the way of every request, so in C alone
    if features or adapter is not None:
        named = [(_by_content(feature), *feature[1:]) for feature in features]
        packed += json.dumps([token_ids is None, named, adapter]).encode()
    digest = hashlib.sha256(packed)
    if embeddings is not None:
        digest.update(embeddings)
    return Prompt(num_tokens, digest.hexdigest())


def _by_content(feature: Feature) -> str:
    """Without its caches vLLM numbers what it is sent (renderers/base.py), and each engine counts
    for itself."""
    return "" if _COUNTED.match(feature.identifier) else feature.identifier
