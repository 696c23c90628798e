"""One request of a workload: when it arrives, what its prompt holds, how much it generates.

A prompt is a description, not a token list: prompts of 100,000 tokens are common in traces and
most are never looked at. ``prompt_token_ids`` turns a description into tokens on demand. This
module does not schedule, send or time anything.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from sim.workload.tokens import DEFAULT_VOCAB_SIZE, content_token_ids


class Segment(NamedTuple):
    """The first ``n_tokens`` tokens of the content named ``content_id``.

    Equal ids mean equal tokens, so two prompts that begin with the same segments share a prefix.
    """

    content_id: int
    n_tokens: int


class RequestSpec(msgspec.Struct, frozen=True):
    """A request as a client will send it. Raises ValueError for counts that no engine accepts."""

    request_id: str
    arrival_ns: int
    prompt: tuple[Segment, ...]
    max_tokens: int

    def __post_init__(self) -> None:
        """Refuse values that would only fail later, inside an engine."""
        if self.arrival_ns < 0:
            raise ValueError(f"{self.request_id}: arrival_ns is {self.arrival_ns}, must be >= 0")
        if self.max_tokens < 1:
            raise ValueError(f"{self.request_id}: max_tokens is {self.max_tokens}, must be >= 1")
        if not self.prompt or any(segment.n_tokens < 1 for segment in self.prompt):
            raise ValueError(
                f"{self.request_id}: prompt {self.prompt!r:.80} must have at least one segment, "
                "each of at least one token"
            )

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return sum(segment.n_tokens for segment in self.prompt)


def prompt_token_ids(
    spec: RequestSpec, *, seed: int = 0, vocab_size: int = DEFAULT_VOCAB_SIZE
) -> npt.NDArray[np.int32]:
    """Token ids of the prompt, shape (prompt_tokens,); a pure function of the arguments."""
    return np.concatenate(
        [
            content_token_ids(
                segment.content_id, segment.n_tokens, seed=seed, vocab_size=vocab_size
            )
            for segment in spec.prompt
        ]
    )
