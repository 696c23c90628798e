"""What a run came to: rows of a table, the verdict, and the JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, get_args

from hw_tests.identity import Identity, unknown
from hw_tests.load.checks import (
    Check,
    blocks_were_read,
    control_loads_nothing,
    drafts_are_accepted,
    loads_are_verified,
)
from hw_tests.outcome import (
    NO_DRAFTS,
    NO_RECALL,
    NOT_COMPARED,
    UNVERIFIED,
    USUAL_GAP,
    Outcome,
    verdict,
    wide_gap,
)
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
        texts: to ask about.
        read: what the engines behind the router counted during each text so far, by its length and
            seed, or why that is not known.
        registered: what the engines behind the router have registered; None without their logs.
        acceptance_gap: by which fewer drafts may be accepted behind the router.
        is_verified: whether a load of which not every byte was compared is a failure, and so is
            what no server tells.
        has_drafts: whether the engines speculate.
        engines: what those behind the router and the control say that they are, by name.
        same_words: whether the arms' words are compared, and not the codes in them.
    """

    settings: Mapping[str, Any]
    servers: Mapping[str, Server]
    answers: list[Answer]
    counters: dict[str, Counters | str]
    texts: int = 0
    read: dict[tuple[int, int], Counters | str] = field(default_factory=dict)
    registered: Evidence | None = None
    acceptance_gap: float = USUAL_GAP
    is_verified: bool = True
    has_drafts: bool = True
    engines: Mapping[str, Identity] = field(default_factory=dict)
    same_words: bool = False

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
        """Of what was counted; of what is not known only if that matters."""
        router, control = (self.counters.get(arm, "not read") for arm in ARMS)
        done = []
        if self.is_verified or (not isinstance(router, str) and not isinstance(control, str)):
            gap, expected = self.acceptance_gap, self.has_drafts
            done.append(drafts_are_accepted(router, control, gap, expected=expected))
        if self.is_verified or not isinstance(control, str):
            done.append(control_loads_nothing(control))
        if self.is_verified or not isinstance(router, str):
            done += [blocks_were_read(router, expected=True), self._each_text_was_read()]
        if self.is_verified:
            done.append(loads_are_verified(router, expected=True))
        return done

    def _each_text_was_read(self) -> Check:
        unread = [f"{words} words, seed {seed}" for (words, seed), counted in self.read.items()
                  if isinstance(counted, str) or not counted.loads]  # fmt: skip
        seen = f"nothing of {'; '.join(unread)}; if a cache had it, name another --first-seed"
        return Check("each text is read", not unread, seen if unread else "all of them")

    def caveats(self) -> list[str]:
        """What a good outcome does not tell."""
        compared = self.registered is not None and len(self.registered.sides) > 1
        told = {NO_RECALL: self.same_words, UNVERIFIED: not self.is_verified,
                NO_DRAFTS: not self.has_drafts, NOT_COMPARED: not compared}  # fmt: skip
        told_of = [caveat for caveat, is_so in told.items() if is_so]
        return [*told_of, *wide_gap(self.acceptance_gap), *unknown(self.engines)]

    def verdict(self) -> str:
        """In one line."""
        outcome, why = self._judged()
        return verdict(outcome, self.caveats(), why)

    @property
    def outcome(self) -> Outcome:
        return self._judged()[0]

    def _judged(self) -> tuple[Outcome, str]:
        if wrong := self._wrong():
            return "FAIL", wrong
        if len(self.read) < self.texts:
            return "INCOMPLETE", f"{len(self.read)} of {self.texts} texts were asked about"
        if idle := self._proves_nothing() or self._first_check(passed=None):
            return "INCOMPLETE", idle
        if self.same_words:
            return "pass", f"all {len(self.pairs())} answers are the control's, word by word"
        return "pass", f"none {self._of_control()} is wrong behind the router"

    def _wrong(self) -> str:
        """Why it has failed, if it has."""
        failures = f", {len(self.failed())} questions failed" if self.failed() else ""
        other = [r for r, c in self.pairs() if r.text != c.text and r.error is c.error is None]
        if self.same_words and (other or failures):
            answers = f"{len(other)} of {len(self.pairs())} answers"
            return f"{answers} are not the control's, word by word{failures}"
        if self.lost() or failures:
            return f"{len(self.lost())} {self._of_control()} are wrong behind the router{failures}"
        if self.registered and not self.registered.passed:
            return self.registered.said.splitlines()[0]
        return self._first_check(passed=False)

    def _first_check(self, *, passed: bool | None) -> str:
        """That ended so; empty if none did."""
        told = [f"{check.name}: {check.seen}" for check in self.checks() if check.passed is passed]
        return told[0] if told else ""

    def _proves_nothing(self) -> str:
        """Why hardly an error could have been seen, if so."""
        control = [answer for _, answer in self.pairs()]
        if self.same_words:
            is_alike = len({answer.text for answer in control}) < 2
            return "the control answers every question alike" if is_alike else ""
        found: dict[int, list[bool]] = {}
        for answer in control:
            found.setdefault(answer.words, []).append(answer.found)
        weak = [f"{sum(of)} of {len(of)} codes in {words} words"
                for words, of in sorted(found.items()) if 2 * sum(of) < len(of)]  # fmt: skip
        return (
            f"the control found {', '.join(weak)}, less than half, so too few could be lost; ask a "
            "model that finds more, or with --same-words"
        ) if weak else ""  # fmt: skip

    def _of_control(self) -> str:
        return f"of the control's {sum(c.found for _, c in self.pairs())} right answers"

    @property
    def passed(self) -> bool:
        return self.outcome == "pass"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            "verdict": self.verdict(),
            "outcome": self.outcome,
            "caveats": self.caveats(),
            "note": NOTE,
            "passed": self.passed,
            "compares": "same words" if self.same_words else "codes",
            "settings": dict(self.settings),
            "arms": {
                arm: {**asdict(server), "counters": _counters(self.counters.get(arm))}
                for arm, server in self.servers.items()
            },
            "engines": {name: engine._asdict() for name, engine in self.engines.items()},
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
