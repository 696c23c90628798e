from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.bench import backends
from faults.bench.backends import BACKENDS, KERNEL, REAL_CLOCK, SIMLOOP, SIMPY, THREADS
from faults.bench.compare import compared
from faults.bench.exchange import Exchange

SMALL = Exchange(pairs=5, messages=4)
MISSING = backends.missing()


def test_no_two_messages_of_an_exchange_are_sent_at_one_moment() -> None:
    """Otherwise who comes first would be for each backend to say."""
    for exchange in (SMALL, Exchange(100, 20), Exchange(20_000, 1)):
        moments = [at for at, _ in exchange.sent_us()]
        assert len(set(moments)) == len(moments) == exchange.pairs * exchange.messages
        assert all(len(taken) == exchange.messages for taken in exchange.deliveries())


@pytest.mark.parametrize("name", [name for name in BACKENDS if name not in MISSING])
def test_every_backend_delivers_the_same(name: str) -> None:
    """Simulators in the order of the plan; the real clock may be late, and loses nothing."""
    taken, planned = BACKENDS[name](SMALL), SMALL.deliveries()
    if name in REAL_CLOCK:
        taken, planned = [sorted(t) for t in taken], [sorted(p) for p in planned]
    assert taken == planned


def test_virtual_time_is_that_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What virtual/wall divides is what the kernel's clock shows at the end."""
    ended_ns: list[int] = []

    class Watched(backends.Kernel):
        def close(self) -> None:
            ended_ns.append(self.now_ns)
            super().close()

    monkeypatch.setattr(backends, "Kernel", Watched)
    backends.on_kernel(SMALL)
    assert ended_ns[0] / 1e9 == pytest.approx(SMALL.duration_s())


def test_figures_name_each_backend_or_why_it_is_missing() -> None:
    """One clear line for simloop where its Python is not."""
    figures = compared(pairs=(2, 3), messages=2)
    assert [size["pairs"] for size in figures["sizes"]] == [2, 3]
    for size in figures["sizes"]:
        assert set(size["backends"]) | set(figures["left_out"]) == set(BACKENDS)
        assert all(found["events_per_s"] > 0 for found in size["backends"].values())
        assert size["backends"][KERNEL]["in_order"] == size["backends"][SIMPY]["in_order"] == 1
        assert size["backends"][THREADS]["virtual_per_wall"] < 1
    if SIMLOOP in figures["left_out"]:
        assert "Python 3.12 and later, this is 3." in figures["left_out"][SIMLOOP]


def test_threads_that_cannot_all_be_started_are_said_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of those that were started plays its part, and none is left behind."""
    import threading

    start: Callable[[threading.Thread], None] = threading.Thread.start
    started: list[threading.Thread] = []

    def start_three(thread: threading.Thread) -> None:
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", start_three)
    monkeypatch.setattr("faults.bench.compare.BACKENDS", {THREADS: backends.on_threads})
    (size,) = compared(pairs=(2,), messages=1)["sizes"]
    assert size["backends"] == {THREADS: {"failed": "can't start new thread"}}
    assert not any(thread.is_alive() for thread in started)
