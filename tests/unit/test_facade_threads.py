"""Threads and locks on virtual time: order, exclusion, death, deadlock."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from facade_world import World, raised

from sim.errors import DeadlockError, TaskKilled, TestbedError, UnsupportedByFacade
from sim.kernel import Process
from sim.units import MS, SECOND

SEEDS = range(50)


def _threads(world: World, functions: list[Any]) -> None:
    threads = [world.threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Condition", "Semaphore"])
def test_at_most_one_thread_is_inside_in_every_order(kind: str) -> None:
    """No seed finds two threads between acquire and release."""
    for seed in SEEDS:
        world = World(seed, perturb=True)
        lock = getattr(world.threading, kind)
        inside: list[int] = []
        most = [0]

        def work(lock: Any, world: World = world, inside: Any = inside, most: Any = most) -> None:
            for _ in range(4):
                with lock:
                    inside.append(1)
                    most[0] = max(most[0], len(inside))
                    world.time.sleep(0)
                    inside.pop()

        def main(world: World = world, kind: Any = lock, work: Any = work) -> None:
            lock = kind()
            _threads(world, [lambda: work(lock)] * 4)

        world.run(main)
        assert most == [1], seed


def test_perturbation_reaches_different_interleavings() -> None:
    """Lock operations are preemption points: seeds differ in who comes first."""

    def orders(seed: int) -> tuple[int, ...]:
        world, order = World(seed, perturb=True), []

        def main() -> None:
            lock = world.threading.Lock()

            def work(number: int) -> None:
                for _ in range(3):
                    with lock:
                        order.append(number)

            _threads(world, [lambda n=n: work(n) for n in range(3)])

        world.run(main)
        return tuple(order)

    assert len({orders(seed) for seed in SEEDS}) > 10
    assert orders(3) == orders(3)


@pytest.mark.parametrize("perturb", [False, True])
def test_lock_goes_to_whoever_has_waited_longest(perturb: bool) -> None:
    """A contended lock is handed over in order of arrival, in every order of events."""
    for seed in SEEDS:
        world, order = World(seed, perturb=perturb), []

        def main(world: World = world, order: list[int] = order) -> None:
            lock = world.threading.Lock()

            def wait_in_line(number: int) -> None:
                world.time.sleep(number)
                with lock:
                    order.append(number)

            lock.acquire()
            threads = [world.threading.Thread(target=wait_in_line, args=(n,)) for n in range(1, 7)]
            for thread in threads:
                thread.start()
            world.time.sleep(10)
            lock.release()
            for thread in threads:
                thread.join()

        world.run(main)
        assert order == [1, 2, 3, 4, 5, 6], seed


def test_queue_keeps_the_order_of_each_producer_in_every_order() -> None:
    """Items of one producer never overtake each other, and none is lost or doubled."""
    for seed in SEEDS:
        world, got = World(seed, perturb=True), []

        def main(world: World = world, got: list[tuple[str, int]] = got) -> None:
            q = world.queue.Queue(maxsize=2)

            def produce(name: str) -> None:
                for number in range(5):
                    q.put((name, number))

            def consume() -> None:
                for _ in range(10):
                    got.append(q.get())

            _threads(world, [lambda: produce("a"), lambda: produce("b"), consume])

        world.run(main)
        for producer in "ab":
            assert [n for who, n in got if who == producer] == [0, 1, 2, 3, 4], seed


def test_no_notification_is_lost_at_the_instant_of_the_timeout() -> None:
    """A permit released in the very instant of a time-out is either taken or still there."""
    for seed in SEEDS:
        world = World(seed, perturb=True)

        def main(world: World = world) -> int:
            semaphore, taken = world.threading.Semaphore(0), []

            def release() -> None:
                world.time.sleep(1)
                semaphore.release()

            def take() -> None:
                taken.append(semaphore.acquire(timeout=1))

            _threads(world, [take, release])
            return taken.count(True) + semaphore.acquire(blocking=False)

        assert world.run(main) == 1, seed


def test_join_times_out_in_virtual_time() -> None:
    """join(timeout) gives up after that much virtual time and succeeds later."""
    world = World()

    def main() -> list[Any]:
        sleeper = world.threading.Thread(target=world.time.sleep, args=(10,))
        sleeper.start()
        sleeper.join(timeout=2.5)
        seen = [world.kernel.now_ns, sleeper.is_alive()]
        sleeper.join()
        return [*seen, world.kernel.now_ns, sleeper.is_alive()]

    assert world.run(main) == [2_500 * MS, True, 10 * SECOND, False]


@pytest.mark.parametrize("timeout", [0.1, 0.3, 1e-12, 1 / 3])
def test_waiting_for_a_deadline_always_ends(timeout: float) -> None:
    """Rounding never leaves a remainder of time that cannot be waited for."""
    world = World()

    def main() -> bool:
        world.time.sleep(0.2)
        deadline = world.time.monotonic() + timeout
        condition = world.threading.Condition()
        with condition:
            for _ in range(5):
                remaining = deadline - world.time.monotonic()
                if remaining <= 0:
                    return True
                condition.wait(remaining)
        return False

    assert world.run(main)


def test_deadlock_report_names_lock_and_owner() -> None:
    """Two threads that wait for each other's locks: the report says which and whose."""
    world = World()

    def main() -> None:
        first, second = world.threading.Lock(), world.threading.RLock()

        def take(one: Any, other: Any) -> None:
            with one:
                world.time.sleep(1)
                with other:
                    pass

        world.threading.Thread(target=take, args=(first, second), name="a").start()
        world.threading.Thread(target=take, args=(second, first), name="b").start()

    with world.kernel.running():
        world.start(main)
        with pytest.raises(DeadlockError) as caught:
            world.kernel.run(until=world.kernel.event())
    text = str(caught.value)
    assert "p0/core/a waits for RLock made at" in text
    assert "held by p0/core/b, (in _Mutex.__enter__) at" in text
    assert "p0/core/b waits for Lock made at" in text
    assert text.count("at test_facade_threads:") == 4  # both locks, both waits


def test_deadlock_report_names_the_call_of_the_library() -> None:
    """Waits inside library code are shown as the call that the guest made, at its line."""
    world = World()

    def main() -> None:
        world.queue.Queue().get()

    with world.kernel.running():
        world.start(main)
        with pytest.raises(DeadlockError, match=r"in Queue\.get\) at test_facade_threads:"):
            world.kernel.run(until=world.kernel.event())


def test_killed_process_releases_nothing() -> None:
    """A lock held by a crashed process stays held, during the run and when it unwinds."""
    world = World()
    other = Process(world.node, "other")
    shared = world.threading.Lock()
    got: list[bool] = []

    def holder() -> None:
        with shared:
            world.time.sleep(100)

    def survivor() -> None:
        got.append(shared.acquire(timeout=1_000))

    with world.kernel.running():
        world.start(holder)
        world.kernel.call_later(1 * SECOND, world.kernel.crash, world.process)
        world.kernel.spawn(other, survivor, name="survivor")
        world.kernel.run()
    assert got == [False]
    assert shared.locked()


def test_unwinding_after_the_run_has_no_effect() -> None:
    """Handlers of a thread that never runs again neither block, signal nor raise oddly."""
    world, seen = World(), []
    event = world.threading.Event()

    def main() -> None:
        condition, q = world.threading.Condition(), world.queue.Queue()
        try:
            with condition:
                condition.wait()
        finally:
            seen.append("unwinding")
            event.set()
            q.put_nowait("x") if not world.kernel.closing else None
            try:
                world.time.sleep(1)
            except TaskKilled:
                seen.append("sleep killed")
            q.get()
            seen.append("never")

    with world.kernel.running():
        world.start(main)
        world.kernel.run()
    assert seen == ["unwinding", "sleep killed"]
    assert world.kernel.failures == []
    assert world.kernel.log.records == []


def test_work_queued_for_a_thread_does_not_run_when_it_unwinds() -> None:
    """After the run nobody starts the work items that a pool still had."""
    world, ran = World(), []

    def main() -> None:
        pool = world.futures.ThreadPoolExecutor(1)
        pool.submit(world.time.sleep, 100)
        pool.submit(ran.append, "ran")

    with world.kernel.running():
        world.start(main)
        world.kernel.run(until_ns=1 * SECOND)
    assert ran == []


def test_condition_on_a_nested_lock_restores_its_depth_when_contended() -> None:
    """A waiter that is woken while another thread holds the lock gets all its levels back."""
    world = World()

    def main() -> list[Any]:
        condition, seen = world.threading.Condition(), []

        def waiter() -> None:
            with condition, condition:
                condition.wait()
                condition.release()
                condition.release()
                seen.append(raised(condition.release))
                condition.acquire()
                condition.acquire()

        def notifier() -> None:
            with condition:
                condition.notify()
                world.time.sleep(1)

        _threads(world, [waiter, notifier])
        return seen

    assert world.run(main) == [("RuntimeError", "cannot release un-acquired lock")]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("Thread", ()), ("Timer", (1, print)), ("RLock", ()), ("Condition", ()), ("Event", ()),
        ("Semaphore", ()), ("BoundedSemaphore", ()), ("Barrier", (2,)),
    ],
)  # fmt: skip
def test_objects_have_every_public_name_of_the_real_ones(name: str, args: tuple[Any, ...]) -> None:
    """A method that were missing would look like a defect of the guest."""
    real = getattr(threading, name)(*args)
    facade = getattr(World().threading, name)(*args)
    assert {n for n in dir(real) if not n.startswith("_")} <= set(dir(facade))


def test_uncaught_exception_is_a_failure_of_the_node() -> None:
    """A thread that dies is recorded with its path; whoever joins it goes on."""
    world = World()

    def main() -> str:
        thread = world.threading.Thread(target=lambda: 1 // 0, name="listener")
        thread.start()
        thread.join()
        return "joined"

    with pytest.raises(ZeroDivisionError):
        world.run(main)
    (failure,) = world.kernel.failures
    assert failure.task == "p0/core/listener"


def test_system_exit_ends_a_thread_quietly() -> None:
    """As in CPython, SystemExit in a thread is no failure."""
    world = World()

    def leave() -> None:
        raise SystemExit(3)

    world.run(lambda: _threads(world, [leave]))
    assert world.kernel.failures == []


def test_threads_of_processes_are_kept_apart() -> None:
    """Names, main thread and enumeration are those of the running process."""
    world = World()
    other = Process(world.node, "other")
    facade, seen = world.threading, {}

    def main(label: str) -> None:
        worker = facade.Thread(target=world.time.sleep, args=(1,))
        worker.start()
        seen[label] = (
            [thread.name for thread in facade.enumerate()],
            facade.current_thread() is facade.main_thread(),
            facade.main_thread().name,
            facade.active_count(),
            facade.get_ident() == facade.current_thread().ident,
        )

    with world.kernel.running():
        world.start(main, "core")
        world.kernel.spawn(other, main, "other", name="main")
        world.kernel.run()
        expected = (["MainThread", "Thread-1 (sleep)"], True, "MainThread", 2, True)
    assert seen == {"core": expected, "other": expected}


def test_two_runs_share_nothing() -> None:
    """Names and numbers start again with each run: facades hold no global state."""

    def names() -> list[str]:
        world = World()
        pool = world.futures.ThreadPoolExecutor(1)
        return [world.threading.Thread().name, pool._thread_name_prefix]

    assert names() == names()


def test_missing_part_of_a_library_ends_the_run() -> None:
    """What is not stood in for is named with the place of use, and cannot be swallowed."""
    world = World()

    def main() -> None:
        try:
            world.threading.settrace(None)
        except BaseException:
            world.time.sleep(1)

    with world.kernel.running():
        world.start(main)
        with pytest.raises(UnsupportedByFacade, match=r"threading\.settrace.*test_facade_threads"):
            world.kernel.run()


def test_guest_cannot_change_a_facade() -> None:
    """What one process assigned, all others would see."""
    world = World()
    with pytest.raises(UnsupportedByFacade, match=r"assigning to threading\.excepthook"):
        world.threading.excepthook = print


def test_testbed_error_in_a_work_item_ends_the_run() -> None:
    """An executor does not keep a hole in the testbed as somebody's result."""
    world = World()

    def hole() -> None:
        raise TestbedError("hole")

    with world.kernel.running():
        world.start(lambda: world.futures.ThreadPoolExecutor(1).submit(hole))
        with pytest.raises(TestbedError, match="hole"):
            world.kernel.run()


def test_sets_of_futures_iterate_alike_in_every_run() -> None:
    """as_completed() yields finished futures in an order that no address decides."""

    def order() -> list[int]:
        world = World()

        def main() -> list[int]:
            with world.futures.ThreadPoolExecutor(4) as pool:
                futures = [pool.submit(int, n) for n in range(20)]
                world.futures.wait(futures)
                return [future.result() for future in world.futures.as_completed(futures)]

        return world.run(main)

    ballast = [object() for _ in range(1_000)]
    first = order()
    del ballast[::3]
    assert order() == first


def test_pool_of_a_crashed_process_does_not_block_others() -> None:
    """Executors of different processes share no lock, whenever one of them dies."""
    for seed in range(20):
        world = World(seed, perturb=True)
        other = Process(world.node, "other")
        done: list[int] = []

        def busy(world: World = world) -> None:
            pool = world.futures.ThreadPoolExecutor(4)
            while True:
                pool.submit(world.time.sleep, 0.001)
                world.time.sleep(0.001)

        def survivor(world: World = world, done: list[int] = done) -> None:
            world.time.sleep(0.01)
            done.append(world.futures.ThreadPoolExecutor(1).submit(int, 5).result())

        with world.kernel.running():
            world.start(busy)
            world.kernel.call_later(5 * MS, world.kernel.crash, world.process)
            world.kernel.spawn(other, survivor, name="main")
            world.kernel.run()
        assert done == [5]


def test_process_pools_are_refused() -> None:
    """Worker processes are not simulated."""
    world = World()
    with pytest.raises(UnsupportedByFacade, match="ProcessPoolExecutor"):
        _ = world.futures.ProcessPoolExecutor
