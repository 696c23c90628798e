"""The reviewed list of what cannot be: it names what there is, each pair once, and says why."""

from __future__ import annotations

from collections import Counter

from faults.cells import entries
from faults.kinds import KINDS


def test_the_list_names_kinds_that_exist() -> None:
    """A kind that was renamed or has gone leaves no line behind."""
    assert {kind for entry in entries() for kind in entry.kinds} <= KINDS.keys()


def test_each_pair_is_listed_once() -> None:
    """So that it has one reason."""
    pairs = Counter((k, p) for entry in entries() for k in entry.kinds for p in entry.phases)
    assert [pair for pair, count in pairs.items() if count > 1] == []


def test_every_reason_is_a_sentence() -> None:
    """Whoever reviews the list is told why, in words."""
    for entry in entries():
        assert entry.reason.endswith("."), entry
        assert len(entry.reason.split()) > 4, entry
