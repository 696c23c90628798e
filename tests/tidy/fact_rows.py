"""The rows of docs/hardware.md about the library's behaviour, from facts.toml and the cases.

Run as a program this writes them into the page.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

from source_tree import ROOT

from hw_tests.arms import ARMS
from hw_tests.conformance import CASES

PAGE = ROOT / "docs" / "hardware.md"
FACTS = ROOT / "hw_tests/conformance/facts.toml"
_HEAD = "| fact | what | cases | on |\n|---|---|---|---|\n"
_MUST = {"sim", "mori-cpu"}


@dataclass(frozen=True)
class Fact:
    """``read``: not seen by running the library, but read in its sources.

    ``instead`` says why an arm, or each of them, has no case of it.
    """

    number: str
    what: str
    cases: tuple[str, ...] = ()
    instead: str = ""
    read: bool = False

    def cases_by_arm(self) -> dict[str, tuple[str, ...]]:
        """Those that run there; arms on which none does are left out."""
        found = {}
        for arm, make in ARMS.items():
            run = {case.body.__name__ for case in CASES if case.needs <= make().features}
            found[arm] = tuple(case for case in self.cases if case in run)
        return {arm: cases for arm, cases in found.items() if cases}

    def wrong(self) -> str | None:
        """What is wrong with it, if anything is."""
        known = {case.body.__name__ for case in CASES}
        if strangers := sorted({*self.cases} - known):
            return f"no such cases: {', '.join(strangers)}; write them, or name others"
        lacking = sorted(_MUST - {*self.cases_by_arm()})
        if self.read or bool(lacking) == bool(self.instead):
            return None
        if lacking:
            return f"no case on {', '.join(lacking)}: write one, or say why in `instead`"
        return "`instead` tells why there is no case, and there are cases; delete it"

    def row(self) -> str:
        """Of the table."""
        cells = [self.number, self.what + (" (read)" if self.read else "")]
        cells.append(_quoted(self.cases) or "none")
        by_arm = self.cases_by_arm()
        every = ", ".join(arm for arm, cases in by_arm.items() if cases == self.cases)
        some = [
            f"{arm}: only {_quoted(cases)}" for arm, cases in by_arm.items() if cases != self.cases
        ]
        cells.append("; ".join(filter(None, (every, *some, self.instead))))
        return f"| {' | '.join(cells)} |"


def _quoted(cases: Sequence[str]) -> str:
    return ", ".join(f"`{case}`" for case in cases)


def facts() -> list[Fact]:
    """By number."""
    found = tomllib.loads(FACTS.read_text())["fact"]
    made = [Fact(**{**one, "cases": tuple(one.get("cases", ()))}) for one in found]
    return sorted(made, key=lambda fact: tuple(map(int, fact.number.split("."))))


def table() -> str:
    """As it has to be in the page."""
    return _HEAD + "".join(f"{fact.row()}\n" for fact in facts())


def table_of(page: str) -> str:
    """As it is there."""
    rows = page.partition(_HEAD)[2].partition("\n\n")[0]
    return f"{_HEAD}{rows}\n"


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text.replace(table_of(text), table()))
