"""``threading``: Thread, Timer, local, and who is running.

A thread is a task of the process that starts it. An exception that leaves ``run`` ends the
thread and is recorded by the kernel as a failure of its node; nothing is printed. Trace and
profile functions and stack sizes are not stood in for.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, ClassVar

from sim.guest.facades.locks import Condition, Lock, RLock, bind, on
from sim.guest.facades.proxy import Facade, unsupported
from sim.guest.facades.storage import local
from sim.guest.facades.sync import Barrier, BoundedSemaphore, Event, Semaphore
from sim.guest.facades.waiting import WaitQueue, enter
from sim.kernel import Kernel, Process, Task, TaskFailure

_IDENT_OF_FIRST_TASK = 2  # 0 is no identifier, and 1 is whoever runs outside any task
_THREAD = "threading.current_thread"  # key in Task.locals


class Thread:
    """A thread of control; override ``run`` or pass ``target``."""

    _threads: ClassVar[Threads]
    _initialized = False
    _number: int

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Thread:
        self = super().__new__(cls)
        self._number = next(cls._threads.numbers)
        return self

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert group is None, "group argument must be None for now"
        self._name = str(name) if name is not None else self._threads.new_name(target)
        self._target = target
        self._args = args
        self._kwargs = kwargs or {}
        self._daemon = daemon if daemon is not None else self._threads.current_daemon()
        self._task: Task | None = None
        self._over = False
        self._joining = WaitQueue(self._threads.kernel)
        self._initialized = True

    def __hash__(self) -> int:
        return self._number  # not the address: sets of threads iterate alike in every run

    def __repr__(self) -> str:
        state = "initial" if self._task is None else "stopped" if self._over else "started"
        return f"<{type(self).__name__}({self._name}, {state} {self.ident})>"

    @property
    def name(self) -> str:
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = str(name)

    @property
    def daemon(self) -> bool:
        return self._daemon

    @daemon.setter
    def daemon(self, daemon: bool) -> None:
        if self._task is not None:
            raise RuntimeError("cannot set daemon status of active thread")
        self._daemon = daemon

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number + _IDENT_OF_FIRST_TASK

    native_id = ident

    def getName(self) -> str:
        return self.name

    def setName(self, name: str) -> None:
        self.name = name

    def isDaemon(self) -> bool:
        return self.daemon

    def setDaemon(self, daemon: bool) -> None:
        self.daemon = daemon

    def start(self) -> None:
        """Start the thread; as in CPython, return when it has begun to run."""
        kernel = self._threads.kernel
        if not self._initialized:
            raise RuntimeError("thread.__init__() not called")
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        enter(kernel)
        process = kernel.require_task(f"start of thread {self._name}").process
        begun = kernel.event()
        self._task = kernel.spawn(process, self._bootstrap, begun, name=self._name)
        self._task.locals[_THREAD] = self
        kernel.wait(begun, what=f"the start of thread {self._name}")

    def _bootstrap(self, begun: Any) -> None:
        begun.succeed()
        self._threads.kernel.checkpoint()  # from here on either of the two may go first
        try:
            self.run()
        except SystemExit:
            pass
        finally:
            if not self._threads.kernel.closing:
                self._over = True
                self._joining.wake_all()

    def run(self) -> None:
        try:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)
        finally:
            del self._target, self._args, self._kwargs

    def is_alive(self) -> bool:
        self._threads.kernel.checkpoint()
        return self._alive()

    def _alive(self) -> bool:
        task = self._task
        return task is not None and not (self._over or task.finished or task.killed)

    def join(self, timeout: float | None = None) -> None:
        if not self._initialized:
            raise RuntimeError("Thread.__init__() not called")
        if self._task is None:
            raise RuntimeError("cannot join thread before it is started")
        if self is self._threads.current():
            raise RuntimeError("cannot join current thread")
        enter(self._threads.kernel)
        self._join(timeout)

    def _join(self, timeout: float | None) -> None:
        if not self._over:
            self._joining.wait(timeout, lambda: f"the end of thread {self._name}")


class _ForeignThread(Thread):
    """A thread that the testbed started: the main thread of a process, or one of an engine."""

    def _join(self, timeout: float | None) -> None:
        raise unsupported(self._threads.kernel, f"join() of {self!r}, which no guest started,")


class Timer(Thread):
    """Calls ``function`` after ``interval`` seconds unless cancelled before."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.interval = interval
        self.function = function
        self.args = args if args is not None else []
        self.kwargs = kwargs if kwargs is not None else {}
        self.finished = on(self._threads.kernel, Event)

    def cancel(self) -> None:
        self.finished.set()

    def run(self) -> None:
        self.finished.wait(self.interval)
        if not self.finished.is_set():
            self.function(*self.args, **self.kwargs)
        self.finished.set()


class Threads:
    """The threads of one run, and which of them is running."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.numbers = itertools.count(1)
        self._names: dict[Process | None, itertools.count[int]] = {}
        self._foreign = type("_ForeignThread", (_ForeignThread,), {"_threads": self})

    def new_name(self, target: Callable[..., Any] | None) -> str:
        task = self.kernel.current()
        process = task.process if task is not None else None
        number = next(self._names.setdefault(process, itertools.count(1)))
        called = getattr(target, "__name__", None)
        return f"Thread-{number} ({called})" if called is not None else f"Thread-{number}"

    def current_daemon(self) -> bool:
        task = self.kernel.current()
        return task is not None and self.of(task).daemon

    def current(self) -> Thread:
        return self.of(self.kernel.require_task("current_thread"))

    def of(self, task: Task) -> Thread:
        thread: Thread | None = task.locals.get(_THREAD)
        if thread is None:
            is_main = task is self._first(task.process)
            thread = self._foreign(name="MainThread" if is_main else task.name, daemon=not is_main)
            thread._task = task
            task.locals[_THREAD] = thread
        return thread

    def main(self) -> Thread:
        return self.of(self._first(self.kernel.require_task("main_thread").process))

    def enumerate(self) -> list[Thread]:
        process = self.kernel.require_task("enumerate").process
        threads = [self.of(task) for task in process.tasks if task.guest]
        return [thread for thread in threads if thread._alive()]

    @staticmethod
    def _first(process: Process) -> Task:
        return next((task for task in process.tasks if task.guest), process.tasks[0])


def make(kernel: Kernel) -> ModuleType:
    """The facade of ``threading`` for one run."""
    threads = Threads(kernel)
    primitives = (Lock, RLock, Condition, Event, Semaphore, BoundedSemaphore, Barrier, local)
    members: dict[str, Any] = {cls.__name__: bind(kernel, cls) for cls in primitives}
    for cls in (Thread, Timer):
        members[cls.__name__] = type(cls.__name__, (cls,), {"_threads": threads})
    members.update(_functions(threads))
    members.update(
        ThreadError=threading.ThreadError,
        BrokenBarrierError=threading.BrokenBarrierError,
        ExceptHookArgs=threading.ExceptHookArgs,
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
    )
    return Facade(kernel, "threading", members)


def _functions(threads: Threads) -> dict[str, Callable[..., Any]]:
    kernel = threads.kernel

    def get_ident() -> int:
        task = kernel.current()
        return 1 if task is None else task.number + _IDENT_OF_FIRST_TASK

    def excepthook(args: Any) -> None:
        task = kernel.require_task("excepthook")
        if args.exc_type is not SystemExit and not kernel.closing:
            owner = task.process.owner
            kernel.failures.append(TaskFailure(kernel.now_ns, task.path, owner, args.exc_value))

    def register_atexit(_function: Callable[..., Any], *_args: Any, **_kwargs: Any) -> None:
        """No simulated interpreter shuts down: a process is killed or the run ends."""

    def active_count() -> int:
        return len(threads.enumerate())

    return {
        "current_thread": threads.current,
        "currentThread": threads.current,
        "main_thread": threads.main,
        "enumerate": threads.enumerate,
        "active_count": active_count,
        "activeCount": active_count,
        "get_ident": get_ident,
        "get_native_id": get_ident,
        "excepthook": excepthook,
        "_register_atexit": register_atexit,
    }
