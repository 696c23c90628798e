"""Which prompts a producer computed without their last token, as for a hybrid model.

The consumer computes that token itself. The producer's drafter has to have a next token for the
last one it sees, and takes the one that the producer sampled. So of that one row there are two
legal values: the one that comes with the hand-off, and the one that the prompt defines.
"""

from __future__ import annotations


class HandOffs:
    """The prompts of all producers and consumers of a run, by hash."""

    def __init__(self) -> None:
        self._on_producers: set[int] = set()
        self._on_consumers: set[int] = set()

    def scheduled(self, role: str, prompt_hash: int) -> None:
        """An engine with this role, in vLLM's words, began with a prompt."""
        prompts = self._on_producers if role == "kv_producer" else self._on_consumers
        prompts.add(prompt_hash)

    def was_cut(self, without_last: int, whole: int) -> bool:
        """Whether a consumer's prompt is ``whole``, and a producer's is that ``without_last``
        token; both are prefix hashes."""
        return whole in self._on_consumers and without_last in self._on_producers
