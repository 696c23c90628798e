"""Small programs that must do the same with the real modules and with the facades."""

from __future__ import annotations

from typing import Any

import pytest
from facade_world import raised, same_in_both


def lock_states(m: Any) -> list[Any]:
    lock = m.threading.Lock()
    seen = [lock.locked(), lock.acquire(), lock.locked(), lock.acquire(False)]
    seen += [lock.acquire(timeout=0.001), lock.acquire(True, 0)]
    lock.release()
    with lock as entered:
        seen += [entered, lock.locked()]
    return [*seen, lock.locked()]


def lock_errors(m: Any) -> list[Any]:
    lock = m.threading.Lock()
    return [
        raised(lock.release),
        raised(lock.acquire, False, 1),
        raised(lock.acquire, True, -2)[0],
        raised(lock.acquire, True, 1e30)[0],
    ]


def rlock_depth(m: Any) -> list[Any]:
    lock = m.threading.RLock()
    seen = [lock.acquire(), lock.acquire(), lock.acquire(blocking=False)]
    for _ in range(3):
        lock.release()
    return [*seen, raised(lock.release)]


def rlock_owner(m: Any) -> list[Any]:
    lock, seen = m.threading.RLock(), []

    def other() -> None:
        seen.append(lock.acquire(blocking=False))
        seen.append(raised(lock.release))

    with lock:
        thread = m.threading.Thread(target=other)
        thread.start()
        thread.join()
    return seen


def lock_released_by_another_thread(m: Any) -> list[Any]:
    lock, seen = m.threading.Lock(), []
    lock.acquire()
    thread = m.threading.Thread(target=lock.release)
    thread.start()
    seen.append(lock.acquire())
    thread.join()
    return seen


def condition_errors(m: Any) -> list[Any]:
    condition = m.threading.Condition()
    return [raised(condition.wait), raised(condition.notify), raised(condition.notify_all)]


def condition_timeout_keeps_depth(m: Any) -> list[Any]:
    lock = m.threading.RLock()
    condition = m.threading.Condition(lock)
    with condition, condition:
        seen = [condition.wait(0.001), condition.wait(0)]
        seen.append(condition.wait_for(lambda: False, timeout=0.001))
        seen.append(condition.wait_for(lambda: "truth"))
        lock.release()
        lock.acquire()
    return [*seen, raised(lock.release)]


def condition_hands_over(m: Any) -> list[Any]:
    condition, box, seen = m.threading.Condition(m.threading.Lock()), [], []

    def consumer() -> None:
        with condition:
            seen.append(condition.wait_for(lambda: len(box)))
            seen.append(box.pop())

    thread = m.threading.Thread(target=consumer)
    thread.start()
    with condition:
        box.append("item")
        condition.notify()
    thread.join()
    return seen


def event_states(m: Any) -> list[Any]:
    event = m.threading.Event()
    seen = [event.is_set(), event.wait(0.001), event.wait(0)]
    event.set()
    seen += [event.is_set(), event.wait(), event.wait(0)]
    event.clear()
    return [*seen, event.is_set()]


def semaphores(m: Any) -> list[Any]:
    plain, bounded = m.threading.Semaphore(2), m.threading.BoundedSemaphore(1)
    seen: list[Any] = [plain.acquire(), plain.acquire(), plain.acquire(False)]
    seen += [plain.acquire(timeout=0), plain.acquire(timeout=0.001)]
    plain.release(3)
    seen += [plain.acquire(False) for _ in range(4)]
    seen += [raised(plain.acquire, False, 1), raised(plain.release, 0)]
    with bounded:
        seen.append(bounded.acquire(blocking=False))
    return [*seen, raised(bounded.release), raised(m.threading.Semaphore, -1)]


def barrier_rounds(m: Any) -> list[Any]:
    openings: list[str] = []
    barrier = m.threading.Barrier(3, action=lambda: openings.append("open"))
    indexes: list[int] = []

    def party() -> None:
        for _ in range(2):
            indexes.append(barrier.wait())

    parties = [m.threading.Thread(target=party) for _ in range(3)]
    for thread in parties:
        thread.start()
    for thread in parties:
        thread.join()
    return [sorted(indexes), openings, barrier.n_waiting, barrier.broken, barrier.parties]


def barrier_breaks(m: Any) -> list[Any]:
    barrier = m.threading.Barrier(2)
    seen = [raised(barrier.wait, 0.001), barrier.broken, raised(barrier.wait)]
    barrier.reset()
    seen += [barrier.broken, raised(barrier.wait, timeout=0)]
    barrier.reset()
    barrier.abort()
    failing = m.threading.Barrier(1, action=lambda: 1 // 0)
    return [*seen, barrier.broken, raised(failing.wait), failing.broken]


def thread_life(m: Any) -> list[Any]:
    class Worker(m.threading.Thread):
        def __init__(self, label: str) -> None:
            super().__init__(name=label, daemon=True)
            self.label = label
            self.seen: list[Any] = []

        def run(self) -> None:
            me = m.threading.current_thread()
            self.seen = [me is self, me.name, me.daemon, me.is_alive(), me.ident is not None]

    worker = Worker("loader")
    before = [worker.is_alive(), worker.ident, raised(worker.join)]
    worker.start()
    worker.join()
    after = [worker.is_alive(), raised(worker.start), isinstance(worker, m.threading.Thread)]
    return before + worker.seen + after


def thread_arguments_and_errors(m: Any) -> list[Any]:
    class Forgetful(m.threading.Thread):
        def __init__(self) -> None:
            pass

    got: list[Any] = []
    thread = m.threading.Thread(
        target=lambda *a, **k: got.append((a, k)), args=(1,), kwargs={"b": 2}
    )
    thread.start()
    thread.join()
    me = m.threading.current_thread()

    def set_daemon() -> None:
        me.daemon = True

    return [got, raised(Forgetful().start), raised(me.join), raised(set_daemon)]


def daemon_is_inherited(m: Any) -> list[Any]:
    seen: list[bool] = []

    def parent() -> None:
        seen.append(m.threading.Thread(target=print).daemon)

    for daemon in (True, False):
        thread = m.threading.Thread(target=parent, daemon=daemon)
        thread.start()
        thread.join()
    return seen


def timer(m: Any) -> list[Any]:
    rung: list[Any] = []
    kept = m.threading.Timer(0.001, rung.append, args=["kept"])
    cancelled = m.threading.Timer(0.001, rung.append, ["cancelled"])
    cancelled.cancel()
    for each in (kept, cancelled):
        each.start()
        each.join()
    return rung


def thread_local(m: Any) -> list[Any]:
    class Counter(m.threading.local):
        shared = "class attribute"

        def __init__(self, start: int, *, step: int) -> None:
            self.value, self.step = start, step

        def up(self) -> int:
            self.value += self.step
            return self.value

    counter, plain, seen = Counter(10, step=5), m.threading.local(), []
    plain.here = "main"

    def other() -> None:
        seen.append([counter.up(), counter.up(), hasattr(plain, "here"), counter.shared])
        plain.here = "other"
        del plain.here
        seen.append(raised(getattr, plain, "here")[0])

    counter.up()
    thread = m.threading.Thread(target=other)
    thread.start()
    thread.join()
    seen.append([counter.value, plain.here, sorted(vars(plain))])
    return [*seen, raised(m.threading.local, 1), raised(setattr, plain, "__dict__", {})[0]]


def queue_limits(m: Any) -> list[Any]:
    q = m.queue.Queue[int](maxsize=2)
    q.put(1)
    q.put_nowait(2)
    seen: list[Any] = [q.qsize(), q.full(), q.empty(), q.maxsize]
    seen += [raised(q.put_nowait, 3), raised(q.put, 3, timeout=0.001)[0]]
    seen += [raised(q.put, 3, timeout=-1), raised(q.put, 3, block=False)]
    seen += [q.get(), q.get_nowait(), raised(q.get_nowait), raised(q.get, timeout=0.001)]
    q.task_done()
    q.task_done()
    q.join()
    return [*seen, raised(q.task_done), q.empty()]


def queue_orders(m: Any) -> list[Any]:
    seen: list[Any] = []
    for kind in (m.queue.Queue, m.queue.LifoQueue, m.queue.PriorityQueue, m.queue.SimpleQueue):
        q = kind()
        for item in (3, 1, 2):
            q.put(item)
        seen.append([kind.__name__, q.qsize(), *(q.get() for _ in range(3)), q.empty()])
        seen.append(raised(q.get, block=False))
        seen.append(raised(q.get, timeout=-1)[0])
    return seen


def queue_between_threads(m: Any) -> list[Any]:
    inbox, outbox = m.queue.Queue(maxsize=1), m.queue.SimpleQueue()

    def double() -> None:
        while (item := inbox.get()) is not None:
            outbox.put(item * 2)
            inbox.task_done()
        inbox.task_done()

    thread = m.threading.Thread(target=double)
    thread.start()
    for item in [*range(20), None]:
        inbox.put(item)
    inbox.join()
    thread.join()
    return [outbox.get() for _ in range(20)]


def future_states(m: Any) -> list[Any]:
    order: list[Any] = []
    future = m.futures.Future()
    for label in "abc":
        future.add_done_callback(lambda f, label=label: order.append((label, f.done())))
    seen: list[Any] = [future.done(), future.running(), raised(future.result, timeout=0.001)]
    future.set_running_or_notify_cancel()
    seen += [future.cancel(), future.running()]
    future.set_result("value")
    future.add_done_callback(lambda f: order.append(("late", f.result())))
    seen += [future.result(), future.exception(), raised(future.set_result, 1)[0]]
    return [*seen, order, isinstance(m.futures.Future[int](), m.futures.Future)]


def future_cancelled(m: Any) -> list[Any]:
    future = m.futures.Future()
    seen = [future.cancel(), future.cancelled(), raised(future.result)]
    return [*seen, raised(future.exception), future.set_running_or_notify_cancel()]


def executor_results(m: Any) -> list[Any]:
    with m.futures.ThreadPoolExecutor(max_workers=2, thread_name_prefix="hs") as pool:
        good, bad = pool.submit(pow, 2, 10), pool.submit(lambda: 1 // 0)
        name = pool.submit(lambda: m.threading.current_thread().name)
        mapped = list(pool.map(lambda x, y: x * y, range(5), range(5)))
        seen = [good.result(), raised(bad.result), name.result().startswith("hs_"), mapped]
        seen.append(isinstance(good, m.futures.Future))
    return [*seen, raised(pool.submit, print)]


def executor_waits(m: Any) -> list[Any]:
    gate = m.threading.Event()
    with m.futures.ThreadPoolExecutor(2) as pool:
        quick, slow = pool.submit(int), pool.submit(gate.wait)
        first = m.futures.wait([quick, slow], return_when=m.futures.FIRST_COMPLETED)
        late = m.futures.wait({quick, slow}, timeout=0.001)
        seen = [quick in first.done, slow in late.not_done, late.done == {quick}]
        seen.append(raised(list, m.futures.as_completed([quick, slow], timeout=0.001)))
        gate.set()
        seen.append(sorted(f.result() for f in m.futures.as_completed([quick, slow])))
    return seen


def executor_shutdown_cancels(m: Any) -> list[Any]:
    gate, began = m.threading.Event(), m.threading.Event()

    def hold() -> bool:
        began.set()
        return bool(gate.wait())

    pool = m.futures.ThreadPoolExecutor(1)
    running, waiting = pool.submit(hold), pool.submit(int)
    began.wait()
    pool.shutdown(wait=False, cancel_futures=True)
    gate.set()
    pool.shutdown()
    return [running.result(), waiting.cancelled(), raised(m.futures.ThreadPoolExecutor, 0)]


def executor_initializer(m: Any) -> list[Any]:
    local = m.threading.local()

    def prepare(value: int) -> None:
        local.value = value

    with m.futures.ThreadPoolExecutor(1, initializer=prepare, initargs=(7,)) as pool:
        return [pool.submit(lambda: local.value).result()]


PROGRAMS = [
    lock_states, lock_errors, rlock_depth, rlock_owner, lock_released_by_another_thread,
    condition_errors, condition_timeout_keeps_depth, condition_hands_over, event_states,
    semaphores, barrier_rounds, barrier_breaks, thread_life, thread_arguments_and_errors,
    daemon_is_inherited, timer, thread_local, queue_limits,
    queue_orders, queue_between_threads, future_states, future_cancelled, executor_results,
    executor_waits, executor_shutdown_cancels, executor_initializer,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program_does_the_same_on_facades(program: Any) -> None:
    """Guest code cannot tell the facades from the modules they stand in for."""
    same_in_both(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program_does_the_same_under_perturbation(program: Any) -> None:
    """What a program promises on real threads holds in every perturbed order."""
    for seed in range(5):
        same_in_both(program, seed, perturb=True)
