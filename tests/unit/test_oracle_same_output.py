from __future__ import annotations

import pytest
from oracle_world import OracleWorld


def ended(outcome: str, tokens: list[int]) -> OracleWorld:
    """A request that asked for four tokens, or up to the fourth, and should get 100 to 103."""
    world = OracleWorld("same-output")
    world.tell("request_started", "r0")
    world.tell("request_ended", "r0", outcome, tokens)
    world.finish()
    return world


@pytest.mark.parametrize(
    ("outcome", "tokens"),
    [
        ("length", [100, 101, 102, 103]),
        ("stop", [100, 101, 102, 103]),
        ("abort", [100, 7]),
        ("error", [7]),
        ("engine-died", []),
    ],
)
def test_right_tokens_and_abnormal_ends_are_no_finding(outcome: str, tokens: list[int]) -> None:
    """O2: only a client that was told that all is well can have been deceived."""
    assert ended(outcome, tokens).violations == []


@pytest.mark.parametrize(
    ("outcome", "tokens", "place", "says"),
    [
        ("length", [100, 101, 7, 103], 2, "output token 2 is 7 and should be 102"),
        ("length", [100, 101], 2, "output token 2 and all after it are missing"),
        ("length", [100, 101, 102, 103, 104], 4, "from output token 4 on it has more"),
        ("stop", [100, 101], 2, "output token 2 and all after it are missing"),
        ("stop", [7], 0, "output token 0 is 7 and should be 100"),
    ],
)
def test_a_normal_end_with_other_tokens_is_a_violation(
    outcome: str, tokens: list[int], place: int, says: str
) -> None:
    """O2: it names the first token that differs."""
    (violation,) = ended(outcome, tokens).violations
    assert (violation.oracle, violation.request_id) == ("same-output", "r0")
    assert says in violation.detail
    assert violation.evidence["first_difference"] == place


def test_every_sample_of_a_prompt_is_compared() -> None:
    """O2: sampling is greedy, so one that is not like the others is wrong."""
    world = OracleWorld("same-output")
    world.tell("request_started", "r0")
    world.tell("sample_ended", "r0", "length", [100, 101, 7, 103])
    world.tell("request_ended", "r0", "length", [100, 101, 102, 103])
    world.finish()
    (violation,) = world.violations
    assert violation.evidence["first_difference"] == 2
