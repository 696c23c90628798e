"""Where a lost code was lost, as far as its two questions on two servers tell.

Every code is asked for twice of either server: at first, when the router's decode engine has to be
handed what it lacks, and again at once, when it has the whole prompt. Sums that are rounded
otherwise in other batches can lose a code, too; such a one is alone, and comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hw_tests.recall.ask import Answer

Pair = tuple[Answer, Answer]
"""The router's and the control's answer to a question."""

UNSURE: Final = "the control lost it once, too: the model is not sure of it"
TWICE: Final = "lost both times: what was handed over, or its place"
HANDED_OVER: Final = "lost at first only: read while it was not there yet, or chance"
OWN_CACHE: Final = "lost again only: the decode engine's own cache, or chance"


@dataclass(frozen=True)
class Lost:
    """A code that the control found and the router did not.

    Args:
        answer: the router's.
        why: one of the constants above.
        in_text: codes of the same text that were lost; many, and near each other in depth, are
            blocks that are wrong.
    """

    answer: Answer
    why: str
    in_text: int


def attribute(lost: Sequence[Pair], pairs: Sequence[Pair]) -> list[Lost]:
    """What each of ``lost`` may come from, told by all ``pairs``."""
    codes = {(router.words, router.seed, router.needle) for router, _ in lost}
    per_text = Counter((words, seed) for words, seed, _ in codes)
    return [
        Lost(router, _why(router, _others(router, pairs)), per_text[router.words, router.seed])
        for router, _ in lost
    ]


def _others(answer: Answer, pairs: Sequence[Pair]) -> list[Pair]:
    """The same code with another hit."""
    code = answer.question[:3]
    return [pair for pair in pairs if pair[0].question[:3] == code and pair[0].hit != answer.hit]


def _why(answer: Answer, others: Sequence[Pair]) -> str:
    if any(not control.found for _, control in others):
        return UNSURE
    if any(not router.found for router, _ in others):
        return TWICE
    return OWN_CACHE if answer.hit == "whole" else HANDED_OVER
