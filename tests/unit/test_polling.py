"""A polling loop's looks are passed over only while they would find nothing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from sim.kernel import Kernel, Node, PollingLoop, Process, Seed
from sim.kernel.kernel import Wait
from sim.units import MS, SECOND


def shown_s(kernel: Kernel) -> float:
    """The time, as a guest's clock shows it."""
    now_s, watch = kernel.now_ns / SECOND, kernel.clock_watch
    return now_s if watch is None else watch.time(now_s, at=lambda now_ns: now_ns / SECOND)


class Poller:
    """Looks once a millisecond, and notes when it found something."""

    def __init__(self, kernel: Kernel, look: Callable[[Poller], bool], name: str = "p") -> None:
        self.kernel = kernel
        self.found: list[int] = []
        self.looks = 0
        self.skipped = 0
        self._look = look
        self.loop = PollingLoop(kernel, self._on_skipped)
        process = Process(Node(name, "10.0.0.1"), "main")
        self.loop.join(kernel.spawn(process, self._main, name="loop"))

    def _on_skipped(self, count: int, period_ns: int) -> None:
        assert period_ns == MS
        self.skipped += count

    def _main(self) -> None:
        while True:
            self.loop.looks()
            self.looks += 1
            if self._look(self):
                self.found.append(self.kernel.now_ns)
                self.kernel.record("found")
            self.loop.will_sleep()
            self.kernel.sleep(MS)


def history(
    set_up: Callable[[Kernel], list[Poller]], *, skips: bool, perturb: bool
) -> tuple[str, list[list[int]], int, int]:
    """Event hash, when each poller found something, looks in all, and looks that took place."""
    kernel = Kernel(Seed(5), perturb=perturb, skips_looks=skips)
    with kernel.running():
        pollers = set_up(kernel)
        kernel.run(until_ns=2 * SECOND)
    real = sum(p.looks for p in pollers)
    return (
        kernel.log.digest(),
        [p.found for p in pollers],
        real + sum(p.skipped for p in pollers),
        real,
    )


def mail_comes(kernel: Kernel) -> list[Poller]:
    mail: list[int] = []
    for at_ns in (1, 300 * MS, 300 * MS + 7, 1_500_500_000):
        kernel.call_later(at_ns, mail.append, at_ns)
    return [Poller(kernel, lambda _p: bool(mail and mail.pop()))]


def a_time_out_strikes(kernel: Kernel) -> list[Poller]:
    def look(poller: Poller) -> bool:
        return shown_s(kernel) >= 0.7505 and not poller.found

    return [Poller(kernel, look)]


def a_thread_of_the_process_works(kernel: Kernel) -> list[Poller]:
    work: list[int] = []
    poller = Poller(kernel, lambda _p: bool(work and work.pop()))

    def run() -> None:
        for delay_ns in (3 * MS, 200 * MS, 400 * MS + 1):
            kernel.sleep(delay_ns)
            work.append(1)

    kernel.spawn(Process(Node("q", "10.0.0.2"), "main"), run, name="other")
    return [poller]


def one_loop_wakes_the_other(kernel: Kernel) -> list[Poller]:
    """The first one's time-out is news for the second one."""
    (first,) = a_time_out_strikes(kernel)
    told: list[int] = []
    second = Poller(
        kernel, lambda p: len(first.found) > len(told) and told.append(1) is None, name="q"
    )
    return [first, second]


def a_thread_answers_through_memory(kernel: Kernel) -> list[Poller]:
    """The thread's clock turns, it writes a flag, and nobody is told: the other loop sees it."""
    flags: list[int] = []
    never = kernel.event()

    def look(poller: Poller) -> bool:
        return bool(flags) and not poller.found

    def work() -> None:
        while True:
            kernel.will_poll()
            kernel.wait(never, 7 * MS)
            watch = kernel.clock_watch
            now = kernel.now_ns / SECOND
            if (now if watch is None else watch.time(now)) >= 0.9005 and not flags:
                flags.append(1)

    poller = Poller(kernel, look)
    kernel.spawn(kernel.tasks[0].process, work, name="worker")
    return [poller]


CASES = [
    mail_comes,
    a_time_out_strikes,
    a_thread_of_the_process_works,
    one_loop_wakes_the_other,
    a_thread_answers_through_memory,
]


@pytest.mark.parametrize("perturb", [False, True])
@pytest.mark.parametrize("set_up", CASES)
def test_skipping_changes_nothing(set_up: Any, perturb: bool) -> None:
    """Same hash, same finds at the same times, same number of looks; but few take place."""
    skipping = history(set_up, skips=True, perturb=perturb)
    looking = history(set_up, skips=False, perturb=perturb)
    assert any(skipping[1]), "nobody found anything"
    assert skipping[:3] == looking[:3]
    assert looking[3] == looking[2] >= 1_990
    assert skipping[3] < 80


def a_busy_thread(
    kernel: Kernel, turn: Callable[[int], None], *, within: bool = True, every_ns: int = 7 * MS
) -> None:
    """A thread of a process of its own, whose turns are seen by nobody else if ``turn`` sees to
    it: its local variable differs each time, so it is no loop."""

    def work() -> None:
        for number in range(1_000):
            kernel.sleep(every_ns, within=within)
            turn(number)

    kernel.spawn(Process(Node("b", "10.0.0.3"), "main"), work, name="busy")


def a_time_out_strikes_while_others_work(kernel: Kernel) -> list[Poller]:
    a_busy_thread(kernel, lambda _number: None)
    return a_time_out_strikes(kernel)


def the_last_moment_of_a_time_out(kernel: Kernel) -> list[Poller]:
    """It is that of a look, and 2 us, which is what the watch leaves, before one of the other's."""
    a_busy_thread(kernel, lambda _number: None, every_ns=7_000_001)

    def look(poller: Poller) -> bool:
        return 0.4 - (shown_s(kernel) - 0.3) <= 0 and not poller.found

    return [Poller(kernel, look), Poller(kernel, lambda p: shown_s(kernel) > 0.701 and not p.found)]


def mail_comes_from_a_busy_thread(kernel: Kernel) -> list[Poller]:
    """By an event, which the thread's turn only schedules."""
    mail: list[int] = []

    def turn(number: int) -> None:
        if number in (40, 41, 120):
            kernel.call_later(1, mail.append, number)

    a_busy_thread(kernel, turn)
    return [Poller(kernel, lambda _p: bool(mail and mail.pop()))]


def a_busy_thread_calls_out(kernel: Kernel) -> list[Poller]:
    """And nobody is told: the other process just finds what it has left, as in a shared file."""
    files: list[int] = []

    def turn(number: int) -> None:
        if number in (40, 120):
            kernel.checkpoint()
            files.append(number)

    a_busy_thread(kernel, turn)
    return [Poller(kernel, lambda _p: bool(files and files.pop()))]


@pytest.mark.parametrize(
    "set_up",
    [
        a_time_out_strikes_while_others_work,
        the_last_moment_of_a_time_out,
        mail_comes_from_a_busy_thread,
        a_busy_thread_calls_out,
    ],
)
def test_looks_are_known_while_others_work(set_up: Any) -> None:
    """The same, though something happens all the time; with ``perturb`` looks draw, and are not."""
    skipping = history(set_up, skips=True, perturb=False)
    looking = history(set_up, skips=False, perturb=False)
    assert any(skipping[1]), "nobody found anything"
    assert skipping[:3] == looking[:3]
    assert skipping[3] < 80 < looking[3]
    drawn = history(set_up, skips=True, perturb=True)
    assert drawn[:3] == history(set_up, skips=False, perturb=True)[:3]


def test_looks_take_place_after_what_others_may_see() -> None:
    """A thread that does not vouch for its turns: three looks after each, all of them real."""

    def set_up(kernel: Kernel) -> list[Poller]:
        a_busy_thread(kernel, lambda _number: None, within=False)
        return [Poller(kernel, lambda _p: False)]

    assert history(set_up, skips=True, perturb=False)[3] > 3 * 280


def test_looks_take_place_that_others_may_notice() -> None:
    def set_up(kernel: Kernel) -> list[Poller]:
        a_busy_thread(kernel, lambda _number: None)
        return [Poller(kernel, lambda _p: kernel.checkpoint() is not None)]

    assert history(set_up, skips=True, perturb=False)[3] > 3 * 280


def test_a_look_that_depends_on_the_number_of_looks_is_told_by_the_hash() -> None:
    """What looks are assumed not to do; without skipping it comes out."""

    def set_up(kernel: Kernel) -> list[Poller]:
        return [Poller(kernel, lambda p: p.looks == 1_000)]

    skipping = history(set_up, skips=True, perturb=False)
    looking = history(set_up, skips=False, perturb=False)
    assert looking[1] == [[999 * MS]]
    assert skipping[0] != looking[0]


def test_a_loop_that_keeps_the_time_is_looked_at_every_time() -> None:
    seen: list[float] = []

    def look(_poller: Poller) -> bool:
        watch = kernel.clock_watch
        seen.append(0.0 if watch is None else watch.time(kernel.now_ns / SECOND))
        return False

    kernel = Kernel(Seed(5))
    with kernel.running():
        poller = Poller(kernel, look)
        kernel.run(until_ns=SECOND)
    assert (poller.looks, poller.skipped) == (1_001, 0)


@pytest.mark.parametrize("skips", [False, True])
def test_a_paused_process_does_not_look(skips: bool) -> None:
    """500 looks before the pause at half a second, 101 from its end, 0.9 s, to the last instant."""
    kernel = Kernel(Seed(5), skips_looks=skips)
    with kernel.running():
        poller = Poller(kernel, lambda _p: False)
        process = kernel.tasks[0].process
        kernel.call_later(500 * MS, kernel.pause, process)
        kernel.call_later(900 * MS, kernel.resume, process)
        kernel.run(until_ns=SECOND)
    assert poller.looks + poller.skipped == 601


@pytest.mark.parametrize("seed", range(20))
def test_the_next_happening_is_the_first_event_that_is_not_over(seed: int) -> None:
    """Whatever the order of the queue, in which time-outs of waits that have ended stay."""
    chance, kernel, times = random.Random(seed), Kernel(Seed(0)), [math.inf]
    over = Wait(kernel, None)  # type: ignore[arg-type]
    over.over = True
    for _ in range(100):
        delay_ns, is_over = chance.randrange(1, 1_000), chance.random() < 0.9
        timeout = kernel.env.timeout(delay_ns)
        if is_over:
            timeout.callbacks.append(over.on_timeout)
        else:
            times.append(delay_ns)
    assert kernel.next_happening_ns() == min(times)
    soon = kernel.next_happening_ns(soon_ns=500)
    assert soon in times
    assert soon == min(times) or soon <= 500
