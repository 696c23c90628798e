"""What a report of recall makes of answers, without a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hw_tests.load.run import Plan, document
from hw_tests.load.send import Limits
from hw_tests.recall import attribution
from hw_tests.recall.ask import Answer, Hit
from hw_tests.recall.counters import Counters
from hw_tests.recall.report import Report


def test_a_control_that_finds_less_than_half_proves_too_little() -> None:
    """At any length; half of them are enough."""

    def outcome(found: int) -> str:
        codes = ["123456" if number < found else "0" for number in range(6)]
        given = [
            Answer(arm, words, 0, str(number), 0.5, "123456", "part", text=code)
            for arm in ("router", "control")
            for words in (120, 400)
            for number, code in enumerate(codes if words == 400 else ["123456"] * 6)
        ]
        counters: dict[str, Counters | str] = {
            "router": Counters(10, 10, 8, 1, 0, 1), "control": Counters(10, 10, 8, 0, 0, 0)
        }  # fmt: skip
        return Report({}, {}, given, counters).verdict()

    assert outcome(3).startswith("pass")
    assert outcome(2).startswith("INCOMPLETE: the control found 2 of 6 codes in 400 words, less")


def test_a_wider_gap_of_drafts_is_told() -> None:
    """In the verdict of recall and of load, as nearly any loss of drafts would pass with it."""
    plan = Plan(Path("trace"), Limits(1, 1, 1, 1.0, 1), [], 1, 1, 1, 1, 0.1, False, True, True)
    for gap, caveats in (
        (0.05, []),
        (0.1, []),
        (0.9, ["drafts accepted by 0.9 less often would pass"]),
    ):
        given = Report({}, {}, [], {}, acceptance_gap=gap)
        assert [each for each in given.caveats() if "drafts" in each] == caveats
        found = document(replace(plan, acceptance_gap=gap), [], {}, None, {})
        assert found["caveats"] == caveats


@pytest.mark.parametrize(
    ("router", "control", "why"),
    [
        ("--", "++", attribution.TWICE),
        ("-+", "++", attribution.HANDED_OVER),
        ("+-", "++", attribution.OWN_CACHE),
        ("--", "+-", attribution.UNSURE),
    ],
)
def test_a_lost_code_is_attributed(router: str, control: str, why: str) -> None:
    """By what both servers answered to its two questions, found (+) or not."""

    hits: tuple[Hit, Hit] = ("part", "whole")

    def answers(arm: str, needle: str, outcomes: str) -> list[Answer]:
        return [
            Answer(arm, 500, 0, needle, 0.5, "123456", hit, text="123456" if mark == "+" else "0")
            for hit, mark in zip(hits, outcomes, strict=True)
        ]

    given = [*answers("router", "kettle", router), *answers("control", "kettle", control)]
    given += [*answers("router", "candle", "-+"), *answers("control", "candle", "++")]
    report = Report({}, {}, given, {})
    lost = [one for one in report.attributed() if one.answer.needle == "kettle"]
    assert {one.why for one in lost} == {why}
    assert {one.in_text for one in report.attributed()} == {2}
