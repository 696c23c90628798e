"""Guest code cannot reach the real world unnoticed; vLLM's shared globals follow the process."""

from __future__ import annotations

import socket
import sys
import threading
import time
from types import ModuleType

import pytest

from sim.errors import FenceError
from sim.guest.fence import fence
from sim.guest.shared_clock import virtual_clock_in_shared_modules
from sim.guest.shared_globals import SharedGlobals
from sim.kernel import Kernel, Node, Process, Seed


def run_guest(source: str, **names: object) -> None:
    """Run ``source`` as the body of a guest task behind the fence."""
    namespace = {"__name__": "guest.p0_core_0.shop.code", **names}
    kernel = Kernel(Seed(1))
    with fence(kernel), kernel.running():
        process = Process(Node("p0", "10.0.0.1"), "core")
        code = compile(source, "shop/code.py", "exec")
        kernel.spawn(process, exec, code, namespace, name="t")
        kernel.run()


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("real_time.sleep(5)", "a real sleep"),
        ("real_threading.Thread(target=print).start()", "a real thread"),
        ("real_socket.socket()", "a real socket"),
        ("import _thread; _thread.start_new_thread(print, ())", "a real thread"),
        ("import selectors; selectors.DefaultSelector().select(1)", "a real wait"),
        ("import uuid; uuid.uuid1()", "a UUID with the real time"),
        ("import torch; torch.seed()", "a seed of the operating system"),
        ("real_time.monotonic()", "time.monotonic"),
        ("real_time.time_ns()", "time.time_ns"),
        ("try:\n    real_time.sleep(5)\nexcept Exception:\n    pass", "a real sleep"),
    ],
)
def test_the_real_world_is_fenced_off(source: str, what: str) -> None:
    """The error names what was asked for and the place, and cannot be swallowed."""
    names = {"real_time": time, "real_threading": threading, "real_socket": socket}
    with pytest.raises(FenceError, match=what) as caught:
        run_guest(source, **names)
    assert "shop.code:" in str(caught.value)


def test_what_a_library_found_during_one_run_is_fenced_off_in_the_next() -> None:
    """A module that is first imported during a run binds what stands for time.sleep then."""
    library = ModuleType("library")
    run_guest("library.sleep = real_time.sleep", library=library, real_time=time)
    assert time.sleep is not library.sleep
    with pytest.raises(FenceError, match="a real sleep"):
        run_guest("library.sleep(5)", library=library)
    library.sleep(0)


def test_a_clock_that_vllm_found_during_one_run_is_virtual_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same for shared vLLM modules, which get the virtual clock."""
    module = ModuleType("vllm.first_imported_during_a_run")
    run_guest("module.now = real_time.monotonic_ns", module=module, real_time=time)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    clock = ModuleType("time")
    vars(clock).update(vars(time), monotonic_ns=lambda: 42)
    kernel, seen = Kernel(Seed(1)), []
    with virtual_clock_in_shared_modules(kernel, clock), fence(kernel), kernel.running():
        process = Process(Node("p0", "10.0.0.1"), "core")
        kernel.spawn(process, lambda: seen.append(module.now()), name="t")
        kernel.run()
    assert seen == [42]
    assert module.now is time.monotonic_ns


def test_outside_tasks_the_world_is_as_it_was() -> None:
    """The hub, and everything after the run, may use clocks and threads."""
    before = (time.sleep, time.monotonic, threading.Thread.start)
    kernel = Kernel(Seed(1))
    with fence(kernel), kernel.running():
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        assert time.monotonic() > 0
    assert (time.sleep, time.monotonic, threading.Thread.start) == before


def test_shared_globals_follow_the_process_at_every_switch() -> None:
    """Two interleaved processes each see their own connector agent."""
    import vllm.distributed.kv_transfer.kv_transfer_state as state

    kernel = Kernel(Seed(1), perturb=True)
    shared = SharedGlobals()
    kernel.on_switch(shared.switch_to)
    seen: list[tuple[str, object]] = []

    def body(name: str) -> None:
        state._KV_CONNECTOR_AGENT = name  # type: ignore[assignment]
        for _ in range(20):
            kernel.sleep(10)
            seen.append((name, state.get_kv_transfer_group()))

    with kernel.running():
        for name in ("p0", "d0"):
            kernel.spawn(Process(Node(name, name), "core"), body, name, name=name)
        kernel.run()
    shared.restore()
    assert len(seen) == 40
    assert all(name == agent for name, agent in seen)
    assert state._KV_CONNECTOR_AGENT is None


def test_shared_vllm_code_reads_the_virtual_clock_inside_tasks_only() -> None:
    """The scheduler's ``time`` is virtual while a task runs and real otherwise."""
    import vllm.v1.core.sched.scheduler as scheduler

    clock = ModuleType("time")
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter",
                 "perf_counter_ns", "sleep"):  # fmt: skip
        setattr(clock, name, lambda: "virtual")
    kernel = Kernel(Seed(1))
    seen: list[object] = []
    with virtual_clock_in_shared_modules(kernel, clock), kernel.running():
        process = Process(Node("p0", "10.0.0.1"), "core")
        kernel.spawn(process, lambda: seen.append(scheduler.time.time()), name="t")
        kernel.run()
        assert isinstance(scheduler.time.time(), float)
    assert seen == ["virtual"]
    assert scheduler.time is time
