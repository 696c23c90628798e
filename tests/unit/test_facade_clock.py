"""time and datetime on virtual time."""

from __future__ import annotations

import datetime as real_datetime
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from facade_world import World, raised

from sim.guest.facades import clock
from sim.units import SECOND


def test_clocks_show_virtual_time() -> None:
    """An hour of sleep passes on every clock, in no real time."""
    world = World()

    def main() -> list[float]:
        names = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
        before = [getattr(world.time, name)() for name in names]
        before_ns = [getattr(world.time, f"{name}_ns")() for name in names]
        world.time.sleep(3_600)
        after = [getattr(world.time, name)() for name in names]
        after_ns = [getattr(world.time, f"{name}_ns")() for name in names]
        passed = [b - a for a, b in zip(before, after, strict=True)]
        return passed + [(b - a) / SECOND for a, b in zip(before_ns, after_ns, strict=True)]

    assert world.run(main) == [3_600.0] * 10


def test_wall_clock_may_jump_and_monotonic_clocks_may_not() -> None:
    """A node's wall clock offset shows in time() and datetime only."""
    world = World()
    datetime = clock.make_datetime(world.kernel)

    def main() -> list[Any]:
        monotonic = world.time.monotonic_ns()
        world.node.wall_offset_ns = -60 * SECOND
        return [
            world.time.monotonic_ns() - monotonic,
            world.time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            world.time.ctime(),
            datetime.datetime.now().isoformat(),
            datetime.datetime.now(datetime.UTC).isoformat(),
            datetime.date.today().isoformat(),
        ]

    assert world.run(main) == [
        0,
        "2025-12-31T23:59:00Z",
        "Wed Dec 31 23:59:00 2025",
        "2025-12-31T23:59:00",
        "2025-12-31T23:59:00+00:00",
        "2025-12-31",
    ]


def test_wall_clock_starts_at_a_fixed_date() -> None:
    """Runs do not depend on the day they are made."""
    world = World()
    assert world.run(world.time.time_ns) == 1_767_225_600 * SECOND


def test_local_time_is_utc() -> None:
    """Nothing depends on the time zone of the machine."""
    world = World()
    datetime = clock.make_datetime(world.kernel)
    now = world.run(lambda: datetime.datetime.now())
    assert world.time.mktime(world.time.localtime(1e9)) == 1e9
    assert now.timestamp() == 1_767_225_600.0
    assert datetime.datetime.fromtimestamp(0).hour == 0


def test_facade_of_datetime_accepts_real_values() -> None:
    """Values made by code that is no guest are dates and times for guests, too."""
    world = World()
    datetime = clock.make_datetime(world.kernel)
    real = real_datetime.datetime(2026, 1, 1)
    assert isinstance(real, datetime.datetime)
    assert isinstance(real, datetime.date)
    assert not isinstance("2026", datetime.datetime)
    assert datetime.datetime(2026, 1, 2) - real == datetime.timedelta(days=1)


def test_polling_the_clock_moves_it() -> None:
    """A loop that only reads the clock until a deadline ends, having taken that long."""
    world = World()

    def main() -> int:
        deadline = world.time.monotonic() + 0.05
        while world.time.monotonic() < deadline:
            pass
        return world.kernel.now_ns

    assert 50_000_000 <= world.run(main) < 60_000_000


def counts_in_a_loop(sleep: Any) -> None:
    for _ in range(500):
        sleep(0.001)


def counts_down(sleep: Any) -> None:
    left = 500
    while left:
        left -= 1
        sleep(0.001)


def counts_outside_a_helper(sleep: Any) -> None:
    def nap() -> None:
        sleep(0.001)

    for _ in range(500):
        nap()


def goes_through_equal_delays(sleep: Any) -> None:
    for delay in [0.001] * 500:
        sleep(delay)


def repeats(sleep: Any) -> None:
    for _ in itertools.repeat(None, 500):
        sleep(0.001)


COUNTING = [
    counts_in_a_loop, counts_down, counts_outside_a_helper, goes_through_equal_delays, repeats
]  # fmt: skip


def test_a_thread_that_asks_its_queue_so_many_times_gives_up_when_it_would() -> None:
    world = World()

    def main() -> float:
        for _ in range(500):
            with pytest.raises(world.queue.Empty):
                world.queue.Queue().get(timeout=0.001)
        return float(world.time.monotonic())

    world.kernel.call_later(10 * SECOND, int)
    assert world.run(main) == pytest.approx(0.5)


@pytest.mark.parametrize("doze", COUNTING)
def test_a_loop_that_counts_its_sleeps_takes_all_of_them(doze: Any) -> None:
    world = World()
    naps = []

    def main() -> float:
        doze(lambda s: (naps.append(1), world.time.sleep(s)))
        return float(world.time.monotonic())

    world.kernel.call_later(10 * SECOND, int)
    assert world.run(main) == 0.5
    assert len(naps) == 500


def test_a_loop_that_waits_for_news_is_passed_over_until_there_is_some() -> None:
    """Ten thousand sleeps, of which few take place, and the news is seen when it would be."""
    world = World()
    news: list[int] = []
    looks: list[int] = []

    def main() -> float:
        while not news:
            looks.append(1)
            world.time.sleep(0.001)
        return float(world.time.monotonic())

    world.kernel.call_later(10 * SECOND - 500, news.append, 1)
    assert world.run(main) == 10.0
    assert len(looks) < 20


CALENDARS: dict[str, Callable[[Any, Any], float]] = {
    "now": lambda _time, dates: dates.datetime.now().timestamp(),
    "fromtimestamp": lambda time, dates: dates.datetime.fromtimestamp(time.time()).timestamp(),
    "gmtime": lambda time, _dates: time.mktime(time.gmtime()),
    "gmtime of": lambda time, _dates: time.mktime(time.gmtime(time.time())),
    "timedelta": lambda time, dates: dates.timedelta(seconds=time.time()).total_seconds(),
}


@pytest.mark.parametrize("read", CALENDARS.values(), ids=CALENDARS)
def test_a_loop_that_waits_by_the_calendar_ends_when_it_would(
    read: Callable[[Any, Any], float],
) -> None:
    """C code makes dates, and asks no watched time what it does with it."""
    world = World()
    dates = clock.make_datetime(world.kernel)
    until = clock.EPOCH_NS / SECOND + 2

    def main() -> float:
        while read(world.time, dates) < until:
            world.time.sleep(0.001)
        return float(world.time.monotonic())

    world.kernel.call_later(10 * SECOND, int)
    assert world.run(main) == pytest.approx(2.0, abs=0.0015)


def test_negative_sleep_is_refused() -> None:
    """As by the real one."""
    world = World()
    assert world.run(raised, world.time.sleep, -1) == (
        "ValueError",
        "sleep length must be non-negative",
    )


@pytest.mark.parametrize("seconds", [1e-12, 0.1, 0.3])
def test_positive_sleep_takes_time(seconds: float) -> None:
    """A loop that sleeps until a deadline makes progress, however little remains."""
    world = World()

    def main() -> int:
        world.time.sleep(seconds)
        return world.kernel.now_ns

    assert world.run(main) == max(1, round(seconds * SECOND))
