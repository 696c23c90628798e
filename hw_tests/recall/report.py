"""What a run came to: rows of a table, the verdict, and the JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, get_args

from hw_tests.load.checks import Check, drafts_are_accepted, loads_are_verified
from hw_tests.recall.ask import Answer, Hit, Server
from hw_tests.recall.attribution import Lost, attribute
from hw_tests.recall.counters import Counters
from hw_tests.registered import Evidence
from hw_tests.unverified import NOTE

ARMS = ("router", "control")


@dataclass(frozen=True)
class Row:
    """All questions about texts of one length with one hit.

    Args:
        asked: questions, of each arm.
        found: right answers by arm.
        same: questions to which both arms answered the same words.
        failed: questions without an answer by arm.
        seconds: median time of an answer by arm, None without any.
    """

    words: int
    hit: Hit
    asked: int
    found: Mapping[str, int]
    same: int
    failed: Mapping[str, int]
    seconds: Mapping[str, float | None]


@dataclass
class Report:
    """Everything that was asked and counted so far.

    Args:
        settings: of the command line.
        servers: by arm.
        answers: in the order of asking.
        counters: what each arm's decode engines counted during the run, or why that is not known.
        registered: what the engines behind the router have registered; None without their logs.
        acceptance_gap: by which fewer drafts may be accepted behind the router.
        is_verified: whether a load of which not every byte was compared is a failure.
    """

    settings: Mapping[str, Any]
    servers: Mapping[str, Server]
    answers: list[Answer]
    counters: dict[str, Counters | str]
    registered: Evidence | None = None
    acceptance_gap: float = 0.1
    is_verified: bool = True

    def pairs(self) -> list[tuple[Answer, Answer]]:
        """The router's and the control's answer to each question."""
        by_arm = {arm: {a.question: a for a in self.answers if a.arm == arm} for arm in ARMS}
        router, control = (by_arm[arm] for arm in ARMS)
        return [(router[q], control[q]) for q in router if q in control]

    def rows(self) -> list[Row]:
        groups: dict[tuple[int, Hit], list[tuple[Answer, Answer]]] = {}
        for pair in self.pairs():
            groups.setdefault((pair[0].words, pair[0].hit), []).append(pair)
        order = sorted(groups, key=lambda group: (group[0], get_args(Hit).index(group[1])))
        return [_row(*group, groups[group]) for group in order]

    def lost(self) -> list[tuple[Answer, Answer]]:
        """Codes that the control found and the router did not, though it answered."""
        return [(r, c) for r, c in self.pairs() if c.found and not r.found and r.error is None]

    def attributed(self) -> list[Lost]:
        """The same, each with where it may have been lost."""
        return attribute(self.lost(), self.pairs())

    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.error is not None]

    def checks(self) -> list[Check]:
        """Of what was counted, as far as it is known."""
        router, control = (self.counters.get(arm) for arm in ARMS)
        done = []
        if isinstance(router, Counters) and isinstance(control, Counters):
            done.append(drafts_are_accepted(router, control, self.acceptance_gap))
        if isinstance(router, Counters) and self.is_verified:
            done.append(loads_are_verified(router))
        return done

    def verdict(self) -> str:
        """In one line; ``passed`` says whether it is a good one."""
        found = sum(control.found for _, control in self.pairs())
        of = f"of the control's {found} right answers"
        failures = f", {len(self.failed())} questions failed" if self.failed() else ""
        if self.failed() or self.lost():
            return f"FAIL: {len(self.lost())} {of} are wrong behind the router{failures}"
        if self.registered and not self.registered.passed:
            return f"FAIL: {self.registered.said.splitlines()[0]}"
        if red := [check for check in self.checks() if not check.passed]:
            return f"FAIL: {red[0].name}: {red[0].seen}"
        if not found:
            return (
                "no question failed, and the control found no code, so nothing could be lost; "
                "compare the answers themselves"
            )
        return f"pass: none {of} is wrong behind the router"

    @property
    def passed(self) -> bool:
        known = self.registered is None or self.registered.passed
        counted = all(check.passed for check in self.checks())
        return not self.lost() and not self.failed() and known and counted

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "verdict": self.verdict(),
            "note": NOTE,
            "passed": self.passed,
            "settings": dict(self.settings),
            "arms": {
                arm: {**asdict(server), "counters": _counters(self.counters.get(arm))}
                for arm, server in self.servers.items()
            },
            "checks": [asdict(check) for check in self.checks()],
            "registered": self.registered and self.registered.document(),
            "rows": [asdict(row) for row in self.rows()],
            "lost": [list(router.question) for router, _ in self.lost()],
            "attribution": [
                {"question": list(one.answer.question), "why": one.why, "in_text": one.in_text}
                for one in self.attributed()
            ],
            "answers": [asdict(answer) | {"found": answer.found} for answer in self.answers],
        }


def _row(words: int, hit: Hit, pairs: Sequence[tuple[Answer, Answer]]) -> Row:
    sides = dict(zip(ARMS, zip(*pairs, strict=True), strict=True))

    def by_arm(what: Callable[[Iterable[Answer]], Any]) -> dict[str, Any]:
        return {arm: what(answers) for arm, answers in sides.items()}

    return Row(
        words=words,
        hit=hit,
        asked=len(pairs),
        found=by_arm(lambda answers: sum(answer.found for answer in answers)),
        same=sum(r.text == c.text and r.error is None is c.error for r, c in pairs),
        failed=by_arm(lambda answers: sum(answer.error is not None for answer in answers)),
        seconds=by_arm(_median_seconds),
    )


def _median_seconds(answers: Iterable[Answer]) -> float | None:
    times = [answer.seconds for answer in answers if answer.error is None]
    return round(median(times), 3) if times else None


def _counters(counters: Counters | str | None) -> Any:
    if isinstance(counters, Counters):
        return asdict(counters) | {"acceptance": counters.acceptance}
    return {"unknown": counters}
