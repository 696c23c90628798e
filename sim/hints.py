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
    or the beginning, as ``tp`` of ``tp_size``."""
    names = list(candidates)
    close = difflib.get_close_matches(word, names, n=1)
    if not close and word:
        close = [n for n in names if n.endswith(f"-{word}") or n.startswith(f"{word}_")]
    return close[0] if close else None
