"""Virtual time, tasks and processes."""

from __future__ import annotations

import signal

import pytest

from sim.errors import DeadlockError, TaskCrashed, TestbedError
from sim.kernel import Kernel, Node, Process, Seed
from sim.kernel.task import call_site


@pytest.fixture
def process() -> Process:
    return Process(Node("p0", "10.0.0.1"), "core")


@pytest.fixture(autouse=True)
def _python_s_own_interrupt_handler():
    """Test runners may have set another one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def kernel(_python_s_own_interrupt_handler):
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


def test_sleeping_takes_virtual_time_only(kernel: Kernel, process: Process) -> None:
    """A sleep of an hour ends an hour later, at once."""
    woke: list[int] = []
    kernel.spawn(
        process,
        lambda: (kernel.sleep(3_600_000_000_000), woke.append(kernel.now_ns)),
        name="sleeper",
    )
    kernel.run()
    assert woke == [3_600_000_000_000]


def test_wait_tells_event_from_timeout(kernel: Kernel, process: Process) -> None:
    """wait() is True when the event came first and False when the time-out did."""
    event, results = kernel.event(), []

    def body() -> None:
        results.append((kernel.wait(event, 10), kernel.now_ns))
        results.append((kernel.wait(event, 1_000), kernel.now_ns))
        results.append((kernel.wait(event), kernel.now_ns))

    kernel.spawn(process, body, name="waiter")
    kernel.call_later(50, event.succeed)
    kernel.run()
    assert results == [(False, 10), (True, 50), (True, 50)]


def test_float_delay_is_refused(kernel: Kernel) -> None:
    """Time is an integer number of nanoseconds."""
    with pytest.raises(TypeError, match=r"1\.5"):
        kernel.env.timeout(1.5)


def test_deadlock_lists_who_waits_for_what_and_where(kernel: Kernel, process: Process) -> None:
    """A run that cannot go on names the task, its wait and the line it waits at."""

    def stuck() -> None:
        kernel.wait(kernel.event(), what="a message that never comes")

    kernel.spawn(process, stuck, name="stuck-thread")
    with pytest.raises(DeadlockError) as caught:
        kernel.run(until=kernel.event())
    text = str(caught.value)
    assert "p0/core/stuck-thread waits for a message that never comes" in text
    assert "at test_kernel:" in text


def test_exception_in_guest_task_is_attributed_to_its_node(
    kernel: Kernel, process: Process
) -> None:
    """A guest thread dies of its exception like a Python thread; the run goes on."""

    def fail() -> None:
        raise ValueError("boom")

    kernel.spawn(process, fail, name="t")
    kernel.run()
    (failure,) = kernel.failures
    assert (failure.owner, failure.task) == ("p0", "p0/core/t")
    assert "boom" in failure.text()


def test_exception_in_testbed_task_ends_the_run(kernel: Kernel, process: Process) -> None:
    """The simulated hardware must not fail silently."""

    def fail() -> None:
        raise ValueError("boom")

    kernel.spawn(process, fail, name="nic", guest=False)
    with pytest.raises(TaskCrashed, match="boom"):
        kernel.run()


def test_testbed_error_cannot_be_swallowed_by_guest(kernel: Kernel, process: Process) -> None:
    """Guest code that catches Exception does not hide a hole in the testbed."""

    def body() -> None:
        try:
            raise TestbedError("hole")
        except Exception:
            pytest.fail("guest code caught a testbed error")

    kernel.spawn(process, body, name="t")
    with pytest.raises(TestbedError, match="hole"):
        kernel.run()


def test_crashed_process_never_runs_again(kernel: Kernel, process: Process) -> None:
    """Neither the code after a wait nor a finally block of a killed task has an effect."""
    effects: list[str] = []

    def body() -> None:
        try:
            kernel.sleep(100)
            effects.append("went on")
        finally:
            if not kernel.closing:
                effects.append("finally")
            kernel.record("after-death")

    kernel.spawn(process, body, name="t")
    kernel.call_later(50, kernel.crash, process)
    kernel.run(until_ns=1_000)
    kernel.close()
    assert effects == []
    assert [r.kind for r in kernel.log.records] == ["process-crashed"]


def test_paused_process_keeps_its_wakeups(kernel: Kernel, process: Process) -> None:
    """A sleep that ends during a pause returns when the pause is over."""
    woke: list[int] = []
    kernel.spawn(process, lambda: (kernel.sleep(100), woke.append(kernel.now_ns)), name="t")
    kernel.call_later(50, kernel.pause, process)
    kernel.call_later(500, kernel.resume, process)
    kernel.run()
    assert woke == [500]


def test_gil_holder_freezes_its_own_process_only(kernel: Kernel, process: Process) -> None:
    """While one thread blocks with the GIL, its siblings stand still and others go on."""
    other = Process(Node("d0", "10.0.0.2"), "core")
    woke: dict[str, int] = {}

    def holder() -> None:
        with kernel.gil_held():
            kernel.sleep(1_000)

    def sleeper(name: str) -> None:
        kernel.sleep(10)
        woke[name] = kernel.now_ns

    kernel.spawn(process, sleeper, "sibling", name="sibling")
    kernel.spawn(process, holder, name="holder")
    kernel.spawn(other, sleeper, "stranger", name="stranger")
    kernel.run()
    assert woke == {"stranger": 10, "sibling": 1_000}


def test_switch_hook_sees_each_change_of_process(kernel: Kernel, process: Process) -> None:
    """The hook runs between tasks of different processes and not between siblings."""
    other = Process(Node("d0", "10.0.0.2"), "core")
    seen: list[str] = []
    kernel.on_switch(lambda p: seen.append(p.path))
    for owner in (process, process, other, process):
        kernel.spawn(owner, lambda: None, name="t")
    kernel.run()
    assert seen == ["p0/core", "d0/core", "p0/core"]


def _order(seed: int, perturb: bool) -> tuple[list[int], str]:
    with Kernel(Seed(seed), perturb=perturb).running() as kernel:
        process = Process(Node("p0", "10.0.0.1"), "core")
        order: list[int] = []
        for i in range(8):
            kernel.spawn(process, order.append, i, name=f"t{i}")
        kernel.run()
        return order, kernel.log.digest()


def test_without_perturbation_ties_keep_their_order() -> None:
    """Readable runs: events of one instant run as they were scheduled."""
    assert _order(1, perturb=False)[0] == list(range(8))


def test_perturbation_orders_ties_by_seed_and_replays() -> None:
    """Seeds give different orders of the same instant, and each gives its own again."""
    runs = {seed: _order(seed, perturb=True) for seed in range(6)}
    assert len({tuple(order) for order, _ in runs.values()}) > 1
    assert len({digest for _, digest in runs.values()}) > 1
    assert all(_order(seed, perturb=True) == run for seed, run in runs.items())


def test_named_streams_are_independent() -> None:
    """A new consumer of randomness does not shift the draws of the others."""
    seed = Seed(7)
    alone = [seed.stream("router").random() for _ in range(3)]
    seed.stream("newcomer").random()
    assert [seed.stream("router").random() for _ in range(3)] == alone
    assert seed.stream("newcomer").random() != seed.stream("router").random()


@pytest.mark.parametrize("is_guest", [True, False])
def test_ctrl_c_ends_the_run_even_if_code_under_test_swallows_everything(
    kernel: Kernel, process: Process, is_guest: bool
) -> None:
    """It is neither a failure of the thread whose turn it was, nor lost in an except clause."""
    steps: list[int] = []

    def body() -> None:
        while True:
            try:
                kernel.sleep(1)
                steps.append(kernel.now_ns)
                if kernel.now_ns == 10:
                    signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                steps.append(-1)

    kernel.spawn(process, body, name="stubborn", guest=is_guest)
    with pytest.raises(KeyboardInterrupt):
        kernel.run(until_ns=1_000)
    assert steps == list(range(1, 11))
    assert kernel.failures == []


def test_a_second_ctrl_c_interrupts_at_once(kernel: Kernel, process: Process) -> None:
    """Code that never gives its turn away can be stopped, too."""
    reached: list[str] = []

    def body() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("after the first")
        signal.raise_signal(signal.SIGINT)
        reached.append("after the second")

    kernel.spawn(process, body, name="busy")
    with pytest.raises(KeyboardInterrupt):
        kernel.run()
    assert reached == ["after the first"]
    assert kernel.failures == []


def test_one_ctrl_c_is_enough_for_code_that_never_comes_back(
    kernel: Kernel, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while nobody waits for its next call any more."""
    monkeypatch.setattr("sim.kernel.kernel._PATIENCE_S", 0.0)
    reached: list[str] = []

    def body() -> None:
        signal.raise_signal(signal.SIGINT)
        reached.append("after it")

    kernel.spawn(process, body, name="busy")
    with pytest.raises(KeyboardInterrupt):
        kernel.run()
    assert reached == []
    assert kernel.failures == []


def test_after_a_run_ctrl_c_is_what_it_was_before() -> None:
    """Also if another program's handler was in place."""
    before = signal.getsignal(signal.SIGINT)
    with Kernel(Seed(1)).running():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    own = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Kernel(Seed(1)).running():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, own)


def test_a_task_cannot_run_the_hub(kernel: Kernel, process: Process) -> None:
    """A run inside of a run would move time under everybody's feet."""
    kernel.spawn(process, lambda: kernel.run(until_ns=50), name="nested", guest=False)
    with pytest.raises(TestbedError, match="the hub runs already"):
        kernel.run()
    assert kernel.now_ns == 0


def test_the_place_of_a_wait_is_the_same_on_every_machine(kernel: Kernel, process: Process) -> None:
    """Modules are named, and not the files that they were loaded from."""
    place = "/srv/env/lib/python3.11/site-packages/pkg/mod.py"
    namespace = {"kernel": kernel, "__name__": "pkg.mod"}
    exec(compile("def stuck(): kernel.wait(kernel.event())", place, "exec"), namespace)
    kernel.spawn(process, namespace["stuck"], name="stuck")
    kernel.run()
    (waiter,) = kernel.describe_waiters()
    assert waiter.endswith("at pkg.mod:1 in stuck")


def test_a_wait_names_no_line_of_the_testbed(kernel: Kernel, process: Process) -> None:
    """Its text is part of the record of a run, which an edit of the testbed must not change."""
    kernel.spawn(process, lambda: None, name="unborn")
    first = kernel.describe_waiters()
    for module in ("sim.device", "faults.device"):
        namespace = {"kernel": kernel, "call_site": call_site, "__name__": module}
        code = "def serve(): kernel.wait(kernel.event(), what='work made at ' + call_site())"
        exec(code, namespace)
        kernel.spawn(process, namespace["serve"], name="device", guest=False)
    kernel.run()
    nowhere = "at a place of the testbed"
    own = f"p0/core/device waits for work made {nowhere} {nowhere}"
    assert first == ["p0/core/unborn waits for its first turn"]
    assert kernel.describe_waiters() == [own, own]
