from __future__ import annotations

from faults.cli.run_summary import drafts_line, hand_off_line
from sim.acceptance import FIRST_STEPS, AcceptanceCount


def counted(*legs: list[int], places: int = 2) -> AcceptanceCount:
    count = AcceptanceCount(places, excluded="epilogue")
    for number, accepted in enumerate(legs):
        count.drafts_verified(f"req-{number}-d0", accepted, places * len(accepted))
    return count


def test_accepted_drafts_are_told_by_number_of_the_step() -> None:
    """Of the requests that had so many steps; a leg that verified nothing has none."""
    total = counted([0, 2, 1], [0, 1], []).total()
    assert [(s.legs, s.accepted, s.accepted_per_step) for s in total.first_steps] == [
        (2, 0, 0.0),
        (2, 3, 1.5),
        (1, 1, 1.0),
    ]
    assert (total.steps, total.accepted, total.accepted_per_step) == (5, 4, 0.8)


def test_only_the_first_steps_are_told_one_by_one() -> None:
    """All of them count in the total."""
    total = counted([1] * (FIRST_STEPS + 5)).total()
    assert len(total.first_steps) == FIRST_STEPS
    assert total.steps == FIRST_STEPS + 5


def test_a_request_of_the_epilogue_does_not_count() -> None:
    """It is no part of the workload."""
    count = counted([1])
    count.drafts_verified("epilogue-d0", [2, 2], 4)
    assert count.total().accepted == 1


def test_the_summary_says_it_in_two_lines() -> None:
    """In all, and what the hand-off cost: the steps up to the first that accepts something."""
    total = counted([0, 2, 1], [0, 1]).total()
    assert drafts_line(total) == (
        "4 of 10 accepted (40.0%) in 5 steps, 0.80 a step; by place in a step: 60%, 20%"
    )
    assert "a request's first step accepts no draft" in (hand_off_line(total) or "")
    longer = hand_off_line(counted([0, 0, 0, 1], [0, 0]).total())
    assert "a request's first 3 steps accept no draft" in (longer or "")


def test_a_run_whose_first_steps_accept_drafts_has_no_hand_off_line() -> None:
    """As where one engine does both."""
    assert hand_off_line(counted([1, 0], [0, 0]).total()) is None
    assert hand_off_line(counted().total()) is None


def test_a_run_without_a_verified_draft_has_no_rate() -> None:
    """Nothing is divided by nothing."""
    total = counted().total()
    assert (total.rate, total.accepted_per_step, total.first_steps) == (0.0, 0.0, [])
