"""The rows of docs/hardware.md about the library's behaviour, from facts.toml and the cases.

Run as a program this writes them into the page.
"""

from __future__ import annotations

import tomllib
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

    def arms(self) -> list[str]:
        """Those on which at least one of its cases runs."""
        needs = [case.needs for case in CASES if case.body.__name__ in self.cases]
        features = {name: make().features for name, make in ARMS.items()}
        return [name for name in features if any(each <= features[name] for each in needs)]

    def wrong(self) -> str | None:
        """What is wrong with it, if anything is."""
        known = {case.body.__name__ for case in CASES}
        if strangers := sorted({*self.cases} - known):
            return f"no such cases: {', '.join(strangers)}; write them, or name others"
        lacking = sorted(_MUST - {*self.arms()})
        if self.read or bool(lacking) == bool(self.instead):
            return None
        if lacking:
            return f"no case on {', '.join(lacking)}: write one, or say why in `instead`"
        return "`instead` tells why there is no case, and there are cases; delete it"

    def row(self) -> str:
        """Of the table."""
        cells = [self.number, self.what + (" (read)" if self.read else "")]
        cells.append(", ".join(f"`{case}`" for case in self.cases) or "none")
        on = ", ".join(self.arms())
        cells.append("; ".join(filter(None, (on, self.instead))))
        return f"| {' | '.join(cells)} |"


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
