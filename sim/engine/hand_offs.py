"""Which prompts a producer computed without their last token, as for a hybrid model.

The consumer computes that token itself. The producer's drafter has to have a next token for the
last one it sees, and takes the one that the producer sampled. So of that one row there are two
legal values: the one that comes with the hand-off, and the one that the prompt defines. A request
that goes on from such a prompt may find the row of the hand-off in the prefix cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from sim.model.content import next_prefix_hash


class HandOffs:
    """The prompts of a run that a connector made shorter by a token after the client sent them."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[int, int]] = {}
        """By leg: number of prompt tokens, and the last of them."""
        self._cut: set[tuple[int, int]] = set()

    def sent(self, leg: str, prompt: Sequence[int]) -> None:
        """An engine is given a prompt, which its connector may shorten in place."""
        self._sent[leg] = (len(prompt), prompt[-1])

    def scheduled(self, leg: str, prompt_tokens: int, prompt_hash: int) -> None:
        """A worker began with a prompt of so many tokens, and with this prefix hash."""
        sent, last_token = self._sent[leg]
        if prompt_tokens == sent - 1:
            whole = next_prefix_hash(prompt_hash, prompt_tokens, last_token)
            self._cut.add((prompt_hash, whole))

    def was_cut(self, without_last: int, whole: int) -> bool:
        """Whether a prompt with the prefix hash ``whole`` was computed without its last token,
        with the prefix hash ``without_last``."""
        return (without_last, whole) in self._cut
