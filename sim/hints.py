"""Guesses at what somebody meant, for messages about what they wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str:
    """A hint at the candidate that was probably meant, or nothing."""
    close = closest(word, candidates)
    return "" if close is None else f" (did you mean {close!r}?)"


def closest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that is spelt alike, or of which ``word`` is the end, as ``3`` of ``req-3``,
    or the beginning, as ``tp`` of ``tp_size``; ``req-99`` does not mean ``req-1``."""
    names = list(candidates)
    close = [n for n in difflib.get_close_matches(word, names, n=1) if not _is_another(word, n)]
    if not close and word:
        close = [n for n in names if n.endswith(f"-{word}") or n.startswith(f"{word}_")]
    return close[0] if close else None


def _is_another(word: str, name: str) -> bool:
    """Whether they differ in the number at their end alone, and in more than digits too many."""
    (stem, number), (other_stem, other) = (each.rpartition("-")[::2] for each in (word, name))
    is_row = stem == other_stem and number.isdigit() and other.isdigit()
    return is_row and number not in other and other not in number
