"""A load that has ended is reported, whatever fails on the way; the flight recorder hurts none."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stand_in_library import connector_module

from connector import logs
from connector.core.errors import ConnectorError
from connector.core.load import LoadAction, LoadState
from connector.core.offer import Address
from connector.core.pairing import Plan
from connector.counters import Counters
from connector.load_results import LoadResults
from connector.metadata import KeepOrder, LoadOrder


class Unwilling(deque[Any]):
    """Tells of every change while it is gone through, as a deque does by chance."""

    def __iter__(self) -> Iterator[Any]:
        assert logs._lock.locked()
        return super().__iter__()


def test_the_record_is_copied_while_nobody_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_recent", Unwilling([{"event": "x", "request": "a"}]))
    heard: list[Any] = []
    bound: Any = type("Bound", (), {"warning": lambda _, _event, events: heard.extend(events)})()
    logs.dump(bound, "a")
    assert heard == [{"event": "x", "request": "a"}]


def test_threads_write_and_dump_at_once() -> None:
    over = threading.Event()
    bound = logs.log.bind(request="a")

    def write() -> None:
        while not over.is_set():
            bound.debug("load-moved", because="x", state="y")

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(50):
        logs.dump(bound, "a")
    over.set()
    thread.join()


def test_a_dump_that_fails_is_no_error() -> None:
    def refuse(*_args: Any, **_fields: Any) -> None:
        raise RuntimeError

    bound: Any = type("Bound", (), {"warning": refuse})()
    logs.dump(bound, "a")


class Unreachable:
    """Knows no producer, so that each load is refused; the rest is asked for nothing."""

    def source(self, _address: Address) -> None:
        raise ConnectorError("no such peer")

    def release(self, _order: Any) -> None:
        pass

    def end(self, _load: Any) -> None:
        pass


class Unreleasable(Unreachable):
    """Nor can anything be released."""

    def release(self, _order: Any) -> None:
        raise RuntimeError("no release")


@pytest.fixture
def load_steps() -> Iterator[ModuleType]:
    yield from connector_module("load_steps")


ORDER = LoadOrder("r", "t", Address("h", 1, 2, 1), None, Plan(()), waits=True)


def steps_of(load_steps: ModuleType, world: Any, results: LoadResults) -> Any:
    timeouts = load_steps.Timeouts(1, 1)
    return load_steps.LoadSteps(world, world, world, results, 0, timeouts, Counters())


def ended(load_steps: ModuleType, world: Any) -> tuple[set[str], set[str]]:
    """The results after one load was refused."""
    results = LoadResults()
    steps = steps_of(load_steps, world, results)
    load = load_steps.Load(ORDER, lambda: True, 0.0, 1.0)
    try:
        steps.go_on(load, 0.0)
    finally:
        assert load.state is LoadState.FAILED
        taken: tuple[set[str], set[str]] = results.take()
    return taken


class FullQueue:
    """A transport whose send queue has room for so many batches, and then for none."""

    refuses_whole = True

    def __init__(self, room: int) -> None:
        self.room = room
        self.posted: list[str] = []

    def read(self, session: str, *_offsets: Any) -> Any:
        self.posted.append(session)
        self.room -= 1
        failed = self.room < 0
        return SimpleNamespace(
            Failed=lambda: failed, Succeeded=lambda: not failed, Message=lambda: "SQ full"
        )


@pytest.mark.requirement("S6", "R16")
def test_a_full_send_queue_is_tried_once_in_a_turn(load_steps: ModuleType) -> None:
    """The library waits in each call, and with it the thread that serves all peers. Each batch is
    posted in the end, and none twice that had room."""
    transport = FullQueue(2)
    world = Unreachable()
    steps = steps_of(load_steps, world, LoadResults())
    load = load_steps.Load(ORDER, lambda: True, 0.0, 9.0)
    load.peer = SimpleNamespace(name="p")
    load.endpoint = SimpleNamespace(transport=transport)
    load.batches = [SimpleNamespace(session=s, ours=[], theirs=[], sizes=[]) for s in "abcde"]
    steps._do(load, LoadAction.POST_READS, 0.0)
    assert "".join(transport.posted) == "abc"
    now = 0.0
    for room, posted in ((0, "abcc"), (1, "abcccd"), (9, "abcccdde")):
        transport.room = room
        while "".join(transport.posted) != posted:
            before = len(transport.posted)
            steps._post_again(load, now)
            assert len(transport.posted) - before <= room + 1
            now += 0.01
            assert now < 1
    assert [status.Failed() for status in load.statuses] == [False] * 5


class RaisesAfterPosting(Unreachable):
    """A peer, and a library whose call raises although its reads are under way by then."""

    name, trouble = "p", ""
    refuses_whole = True

    def __init__(self) -> None:
        self.endpoint = SimpleNamespace(transport=self, is_quiet=False)
        self.released: list[Any] = []

    def source(self, _address: Address) -> Any:
        return self

    def connect(self, _now: float, _incarnation: None, since: float) -> bool:
        return since == 0.0

    def batches(self, _plan: Plan) -> list[Any]:
        return [SimpleNamespace(session="s", ours=[], theirs=[], sizes=[])]

    def read(self, *_reads: Any) -> Any:
        raise RuntimeError("after the reads were posted")

    def reads_failed(self, _endpoint: Any, _reason: str) -> None:
        pass

    def release(self, order: Any) -> None:
        self.released.append(order)

    def check_source(self, *_about: Any) -> None:
        pass

    def open_sessions(self, _plan: Plan) -> bool:
        return True

    check_safe = check_source

    def verifies(self, _load: Any) -> bool:
        return False


@pytest.mark.requirement("S5")
@pytest.mark.parametrize("closes", [True, False])
def test_a_call_that_raises_may_have_posted_all_the_same(
    load_steps: ModuleType, closes: bool
) -> None:
    """So its blocks are given back when its queue pairs are gone, or else when the fence ends."""
    world = RaisesAfterPosting()
    results = LoadResults()
    steps = steps_of(load_steps, world, results)
    load = load_steps.Load(ORDER, lambda: True, 0.0, 1.0)
    for now in (0.1, 0.2, 1.0):
        steps.go_on(load, now)
        assert not load.has_ended
        assert not world.released
    world.endpoint.is_quiet = closes
    steps.go_on(load, 1.1 + 1e-9 if not closes else 1.05)
    assert load.state is LoadState.FAILED
    assert world.released
    assert results.take() == FAILED


class Broken:
    """Every part of the loader's round fails the first time; the load ends the second time."""

    connecting = sockets = ()

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.has_gone_on = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return lambda *_args: self._fail(name)

    def _fail(self, name: str) -> None:
        self.calls.append(name)
        if self.calls.count(name) == 1:
            raise RuntimeError(name)

    def seconds_to_next(self, _now: float) -> None:
        return None

    def close(self) -> None:
        pass

    def go_on(self, *args: Any) -> None:
        load = args[0]
        if isinstance(load, float):  # the renewer's
            return
        self._fail("go_on")
        load.state = LoadState.FAILED
        self.has_gone_on.set()


FAILED = ({"r"}, {"r"})


@pytest.mark.requirement("R16")
def test_a_load_is_reported_if_its_report_cannot_be_logged(
    load_steps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any) -> None:
        raise RuntimeError("deque mutated during iteration")

    monkeypatch.setattr(load_steps, "dump", refuse)
    assert ended(load_steps, Unreachable()) == FAILED


@pytest.mark.requirement("R16")
def test_a_load_is_reported_if_it_cannot_be_released(load_steps: ModuleType) -> None:
    """The error comes between the last state and the report."""
    assert ended(load_steps, Unreleasable()) == FAILED


@pytest.mark.requirement("R16")
def test_the_loader_goes_on_after_errors(load_steps: ModuleType) -> None:
    """Of the step of a load, and of every other part of its round."""
    loader_module = importlib.import_module("connector.loader")
    world: Any = Broken()
    loader = loader_module.Loader(world, world, world, world, world, LoadResults(), 1.0)
    loader.keep(KeepOrder("r", ORDER.share, 60.0))
    loader.start(ORDER, lambda: True)
    assert world.has_gone_on.wait(10)
    loader.close()
    expected = {"keep", "receive", "go_on", "close_retired", "close_unused"}
    assert expected <= set(world.calls)


class Unforeseen(Broken):
    """Nor can be told when something is due, at first; then it is in longer than any wait lasts.
    Nothing can be closed."""

    def __init__(self) -> None:
        super().__init__()
        self.has_waited = threading.Event()

    def seconds_to_next(self, _now: float) -> Any:
        if self.calls.count("seconds_to_next") < 2:
            self._fail("seconds_to_next")
        self.has_waited.set()
        return 1e11

    def close(self) -> None:
        self.calls.append("close")
        raise RuntimeError("close")


@pytest.mark.requirement("R16")
def test_nothing_ends_the_loader_while_it_waits(
    load_steps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an error before the wait, a wait that no thread can do, or a log that fails; it loads
    afterwards, and closes all that it has."""
    loader_module = importlib.import_module("connector.loader")
    monkeypatch.setattr(loader_module, "log", Unloggable())
    world: Any = Unforeseen()
    loader = loader_module.Loader(world, world, world, world, world, LoadResults(), 1.0)
    assert world.has_waited.wait(10)
    loader.start(ORDER, lambda: True)
    assert world.has_gone_on.wait(10)
    loader.close()
    assert world.calls.count("close") == 3


class Unloggable:
    """A log that cannot be written."""

    def bind(self, **_about: Any) -> Any:
        return self

    def exception(self, *_args: Any, **_fields: Any) -> None:
        raise OSError("no space left on device")


@pytest.mark.requirement("R16")
def test_a_step_waits_for_its_loads_for_two_seconds_after_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pieces, each at most a sixteenth or a second."""
    results, waits = LoadResults(), []

    def wait_for(_is_done: Any, timeout: float) -> bool:
        waits.append(timeout)
        return False

    monkeypatch.setattr(results._changed, "wait_for", wait_for)
    assert results.wait(["r"], 32.0) == (set(), set())
    assert waits == [2.0] * 16 + [1.0, 1.0]
