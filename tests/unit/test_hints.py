from __future__ import annotations

import pytest

from sim.hints import nearest


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("req-33", "req-3"),
        ("req-99", None),
        ("reg-1", "req-1"),
        ("3", "req-3"),
        ("tp", "tp_size"),
        ("3-d0", None),
        ("", None),
    ],
)
def test_what_was_meant_is_guessed_by_spelling_or_by_a_part(word: str, meant: str | None) -> None:
    """A request that is called by its number alone is the one of that number."""
    names = [*(f"req-{number}" for number in range(5)), "tp_size"]
    assert nearest(word, names) == ("" if meant is None else f" (did you mean {meant!r}?)")
