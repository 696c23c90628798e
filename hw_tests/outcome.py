"""How a run ends: in a word, as an exit code, and with what its evidence does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

Outcome = Literal["pass", "FAIL", "INCOMPLETE"]
"""INCOMPLETE: nothing failed, and too little was tested to say more."""
EXIT_CODES: Final[Mapping[str, int]] = {"pass": 0, "FAIL": 1, "INCOMPLETE": 3}

UNVERIFIED: Final = "reads unverified"
NOT_COMPARED: Final = "registered caches not compared"
NO_DRAFTS: Final = "drafts not judged"
NO_RECALL: Final = "recall not judged"
ONE_HOST: Final = "both sides on one host, which tells nothing of two"
OTHER_VERSIONS: Final = "the machine of the tests has {}"


USUAL_GAP: Final = 0.1
"""By which fewer drafts may be accepted behind a router, if nobody says another share."""


def wide_gap(gap: float) -> list[str]:
    """A caveat, if drafts may be accepted less often than usual; nothing otherwise."""
    return [f"drafts accepted by {gap:g} less often would pass"] if gap > USUAL_GAP else []


def narrowed_by(left_out: Iterable[str]) -> str:
    """A caveat: options by which less was run than there is."""
    return f"narrowed: {' '.join(left_out)}"


def verdict(outcome: Outcome, caveats: Iterable[str], why: str) -> str:
    """In one line; only a good outcome claims what caveats take back."""
    named = caveats if outcome == "pass" else ()
    return f"{', '.join([outcome, *named])}: {why}"
