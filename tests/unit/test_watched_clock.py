"""Code that read a watched clock would have decided the same until the watch says so."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sim.kernel.watched_clock import ClockWatch, WatchedTime, plain_time
from sim.units import SECOND

NOW_S = 100.0


def turns_at_s(program: Callable[[WatchedTime], Any]) -> float | None:
    """In seconds from ``NOW_S``, when ``program`` may decide otherwise."""
    watch = ClockWatch(int(NOW_S * SECOND))
    program(watch.time(NOW_S))
    until_ns = watch.close()
    return None if until_ns is None else until_ns / SECOND - NOW_S


@pytest.mark.parametrize(
    ("program", "turns_s"),
    [
        (lambda now: now >= 130.0, 30.0),
        (lambda now: now > 90.0, math.inf),
        (lambda now: now > 130.0, 30.0),
        (lambda now: now - 80.0 > 60, 40.0),
        (lambda now: 110.0 - now <= 0, 10.0),
        (lambda now: now + 60.0 < 150.0, math.inf),
        (lambda now: now + 30.0 < 150.0, 20.0),
        (lambda now: (now - 80.0) * 1000 > 60_000, 40.0),
        (lambda now: max(0.0, 110.0 - now), 10.0),
        (lambda now: min(now >= 130.0, now >= 120.0), 20.0),
        (lambda now: now - now + 5 > 3, math.inf),
        (lambda now: now == 103.0, 3.0),
        (lambda now: now + 1, math.inf),
    ],
)
def test_the_first_comparison_that_turns(
    program: Callable[[WatchedTime], Any], turns_s: float
) -> None:
    """Until just before that moment, every comparison has the answer that it had."""
    found = turns_at_s(program)
    assert found is not None
    assert found == turns_s or turns_s - 1e-5 < found < turns_s


@pytest.mark.parametrize(
    "program",
    [int, str, hash, round, bool, abs, math.floor, repr, pickle.dumps,
     lambda now: now % 1, lambda now: now / 2, lambda now: now**2, lambda now: now * now,
     lambda now: f"{now:.1f}", lambda now: {now: 1}],
)  # fmt: skip
def test_other_uses_leave_it_open(program: Callable[[WatchedTime], Any]) -> None:
    assert turns_at_s(program) is None


def test_a_time_that_is_kept_leaves_it_open() -> None:
    kept: list[float] = []
    assert turns_at_s(kept.append) is None
    assert turns_at_s(lambda now: kept.append(now + 60.0)) is None
    assert turns_at_s(lambda now: kept.append(plain_time(now))) == math.inf


def test_a_kept_time_is_an_ordinary_number_afterwards() -> None:
    """A deadline that was computed in a watched look serves as any other."""
    watch = ClockWatch(0)
    deadline = watch.time(NOW_S) + 60.0
    watch.close()
    assert type(deadline - 100.0) is float
    assert (deadline, deadline > 159, deadline - 60.0) == (160.0, True, 100.0)
    assert json.dumps(deadline) == "160.0"
    later = ClockWatch(0)
    assert later.time(NOW_S) < deadline
    assert later.close() == pytest.approx(60 * SECOND, abs=10_000)


@pytest.mark.parametrize(
    ("program", "turns_s"),
    [
        (lambda now, kept: now >= kept, 30.0),
        (lambda now, kept: kept <= now, 30.0),
        (lambda now, kept: now - kept > 0, 30.0),
        (lambda now, kept: kept - now < 0, 30.0),
        (lambda now, kept: max(kept - now, 0.0), 30.0),
        (lambda now, kept: kept + 5.0 < now, 35.0),
        (lambda now, kept: kept + now > 300.0, 70.0),
        (lambda now, kept: -kept + now > 0.0, 30.0),
        (lambda now, kept: kept * 2.0 < now + 130.0, 30.0),
    ],
)
def test_a_time_that_was_kept_may_stand_on_either_side(
    program: Callable[[WatchedTime, WatchedTime], Any], turns_s: float
) -> None:
    """It is a number like another, and the clock that it is compared with is watched."""
    watch = ClockWatch(0)
    kept = watch.time(NOW_S) + 30.0
    watch.close()
    until_s = turns_at_s(lambda now: program(now, kept))
    assert until_s is not None
    assert 0 <= turns_s - until_s < 1e-4


@pytest.mark.parametrize("other", ["x", None])
def test_what_is_no_number_cannot_be_compared(other: Any) -> None:
    with pytest.raises(TypeError):
        turns_at_s(lambda now: now < other)


@pytest.mark.parametrize(
    "program",
    [
        lambda now: now > 130.1,
        lambda now: 110.3 - now * 1.7 <= 1e-9,
        lambda now: (0.1 + now - 80.7) * 1000 > 60_000.3,
        lambda now: min(now >= 130.3, -now <= -120.7),
        lambda now: max(0.0, 110.1 - now) < 3 or now < 1e9 + 0.1,
    ],
)
def test_what_would_have_been_seen_later_is_the_same_to_the_last_bit(
    program: Callable[[WatchedTime], Any],
) -> None:
    def look(now_ns: int) -> ClockWatch:
        watch = ClockWatch(now_ns)
        program(watch.time(now_ns / SECOND, at=lambda at_ns: at_ns / SECOND))
        return watch

    first = look(100 * SECOND)
    for later_ns in range(100 * SECOND + 1, 109 * SECOND, 123_456_789):
        assert first.again(later_ns).close() == look(later_ns).close()
    assert first.repeats


@pytest.mark.parametrize(
    "program", [lambda now: (now + 0.1) - now, lambda now: (now * 3) - 3 * now]
)
def test_a_difference_that_depends_on_the_fineness_is_not_repeated(
    program: Callable[[WatchedTime], Any],
) -> None:
    watch = ClockWatch(int(NOW_S * SECOND))
    value = program(watch.time(NOW_S, at=lambda now_ns: now_ns / SECOND))
    assert watch.repeats is (value == 0)


def test_a_time_of_which_nothing_more_is_known_is_not_repeated() -> None:
    watch = ClockWatch(int(NOW_S * SECOND))
    assert watch.time(NOW_S) < 200
    assert not watch.repeats
