"""The validation report: what ran, on what, how it ended, and hashes of all that it rests on."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hw_tests.cluster.page import page
from hw_tests.outcome import Outcome, verdict
from hw_tests.registered import compare
from hw_tests.sealed import seal
from hw_tests.unverified import NOTE

How = Literal["passed", "failed", "not run"]
BOTH = "both"
HERE = "here"
NOTES = {
    "sim": "simulated library: tells nothing about GPUs, NICs or ROCm",
    "rocm": NOTE,
}


class Test(NamedTuple):
    """One test.

    Args:
        where: it ran: a host's name, `BOTH` sides, or `HERE`, on the machine of the tests.
        name: its file and name.
        how: it ended.
        seconds: it took.
        reason: why it failed or was not run.
    """

    where: str
    name: str
    how: How
    seconds: float
    reason: str


@dataclass
class Report:
    """Everything that is known so far.

    Args:
        arm: that was asked for.
        settings: of the command line.
        hosts: facts by role.
        tests_on: facts of the machine on which the tests between the hosts ran.
        tests: that have ended.
        problems: why nothing more could be run, what ended it early, or what tested too little.
        is_cut_short: whether the run was ended early, which may be why tests failed.
        caveats: what the tests that passed do not tell.
        registered: caches of served engines, as `hw_tests.registered` tells them.
    """

    arm: str
    settings: Mapping[str, Any]
    hosts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_cut_short: bool = False
    caveats: list[str] = field(default_factory=list)
    registered: Mapping[str, Any] = field(default_factory=dict)
    tests_on: Mapping[str, Any] = field(default_factory=dict)

    def cut_short(self, why: str) -> None:
        """Nothing more is run."""
        self.problems.insert(0, why)
        self.is_cut_short = True

    @property
    def counts(self) -> dict[How, int]:
        counted = Counter(test.how for test in self.tests)
        return {"passed": counted["passed"], "failed": counted["failed"],
                "not run": counted["not run"]}  # fmt: skip

    @property
    def outcome(self) -> Outcome:
        """Passed if something was tested, nothing failed, and there is no problem."""
        counts = self.counts
        if counts["failed"] and not self.is_cut_short:
            return "FAIL"
        return "pass" if counts["passed"] and not self.problems else "INCOMPLETE"

    @property
    def verdict(self) -> str:
        """In one line; of problems the first one's first."""
        said = ", ".join(f"{number} {how}" for how, number in self.counts.items())
        problem = "\n".join(self.problems).partition("\n")[0]
        if self.outcome == "INCOMPLETE":
            said = f"{problem or 'nothing was tested'} ({said})"
        elif problem:
            said = f"{said}; {problem}"
        return verdict(self.outcome, self.caveats, said)

    def take_registered(self, logs: Mapping[str, Path]) -> None:
        """Compare what the engines with these logs have registered; one more test."""
        told = {n: path.read_text(errors="replace") if path.exists() else ""
                for n, path in logs.items()}  # fmt: skip
        evidence = compare(told)
        self.registered = evidence.document()
        how: How = "passed" if evidence.passed else "failed"
        self.tests.append(Test(BOTH, "registered caches", how, 0.0, evidence.said))

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema_version": 1,
            "verdict": self.verdict,
            "outcome": self.outcome,
            "passed": self.outcome == "pass",
            "caveats": self.caveats,
            "arm": self.arm,
            "note": NOTES[self.arm],
            "settings": dict(self.settings),
            "hosts": self.hosts,
            "tests_on": self.tests_on,
            "counts": self.counts,
            "problems": self.problems,
            "registered": self.registered,
            "tests": [test._asdict() for test in self.tests],
        }


def write(report: Report, folder: Path) -> str:
    """Write ``report.json``, ``report.html`` and ``SHA256SUMS``; returns the hash of the first."""
    written = [folder / name for name in ("report.json", "report.html", "SHA256SUMS")]
    for path in written:
        path.unlink(missing_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return seal(report.document(), written[0], page, files, written[2])


def read_junit(text: str, where: str) -> list[Test]:
    """The tests of a file that pytest has written; one that failed if it is cut or foreign.

    Of `BOTH` sides are only tests with a property of that name.
    """
    if not text:
        return []
    try:
        return [
            _test(case, HERE if where == BOTH and not _has_sides(case) else where)
            for case in ET.fromstring(text).iter("testcase")
        ]
    except (ET.ParseError, ValueError) as error:
        why = f"what pytest has written cannot be read: {error}"
        return [Test(where, "pytest", "failed", 0.0, why)]


def _has_sides(case: ET.Element) -> bool:
    return any(told.get("name") == BOTH for told in case.iter("property"))


def _test(case: ET.Element, where: str) -> Test:
    name = f"{case.get('classname', '')}::{case.get('name')}".removeprefix("::")
    seconds = float(case.get("time", "0"))
    for child in case:
        if child.tag in ("failure", "error"):
            reason = f"{child.get('message') or ''}\n{child.text or ''}".strip()
            return Test(where, name, "failed", seconds, reason)
        if child.tag == "skipped":
            message = re.sub(r"^Skipped: ", "", child.get("message") or "")
            return Test(where, name, "not run", seconds, message)
    return Test(where, name, "passed", seconds, "")
