"""Lock, RLock and Condition of ``threading``.

Locks are fair: a release hands the lock to the thread that has waited longest. CPython's are
not; a thread that releases and acquires again at once often wins there and never does here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from sim.guest.facades.waiting import WaitQueue, enter, timeout_ns
from sim.kernel import Kernel, Task
from sim.kernel.task import call_site
from sim.units import ns_to_seconds

T = TypeVar("T")


class Primitive:
    """Base of all synchronisation objects: bound to a kernel, and it knows where it was made."""

    _kernel: ClassVar[Kernel]

    def __init__(self) -> None:
        self._made_at = call_site()

    def __str__(self) -> str:
        return f"{type(self).__name__} made at {self._made_at}"


class _Mutex(Primitive):
    """What Lock and RLock share: an owner, a depth, and a queue."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._owner: Task | None = None
        self._waiting = WaitQueue(self._kernel)

    def _take(self, blocking: bool, timeout: float, depth: int = 1) -> bool:
        if self._depth == 0:
            self._depth = depth
            self._owner = self._kernel.current()
            return True
        if not blocking or timeout == 0:
            return False
        if not self._waiting.wait(None if timeout < 0 else timeout, self._describe):
            return False
        self._depth = depth  # the releaser made us the owner
        return True

    def _hand_over(self) -> None:
        heir = self._waiting.wake_first()
        self._owner = heir.task if heir is not None else None
        self._depth = 1 if heir is not None else 0

    def _describe(self) -> str:
        owner = self._owner
        if owner is None:
            return f"{self}, taken outside any thread,"
        return f"{self}, held by {owner.path}{' (killed)' if owner.killed else ''},"

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError


class Lock(_Mutex):
    """A lock that any thread may release."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _check_timeout(blocking, timeout)
        enter(self._kernel, within=True)
        return self._take(blocking, timeout)

    def release(self) -> None:
        self._kernel.checkpoint(within=True)
        if self._kernel.closing:
            return
        if self._depth == 0:
            raise RuntimeError("release unlocked lock")
        self._hand_over()

    def locked(self) -> bool:
        self._kernel.checkpoint(within=True)
        return self._depth > 0

    def _is_owned(self) -> bool:
        return self._depth > 0

    def _release_save(self) -> int:
        self.release()
        return 1

    def _acquire_restore(self, _depth: int) -> None:
        self.acquire()


class RLock(_Mutex):
    """A lock that its owner may take again, and only its owner may release."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        _check_timeout(blocking, timeout)
        enter(self._kernel, within=True)
        if self._is_owned():
            self._depth += 1
            return True
        return self._take(blocking, timeout)

    def release(self) -> None:
        self._kernel.checkpoint(within=True)
        if self._kernel.closing:
            return
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._depth -= 1
        if self._depth == 0:
            self._hand_over()

    def _is_owned(self) -> bool:
        return self._depth > 0 and self._owner is self._kernel.current()

    def _release_save(self) -> int:
        depth = self._depth
        self._depth = 1
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        enter(self._kernel, within=True)
        self._take(True, -1, depth)


class Condition(Primitive):
    """A condition variable; ``notify`` wakes in order of ``wait``."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__()
        self._lock = lock if lock is not None else on(self._kernel, RLock)
        self.acquire: Callable[..., bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release
        self._waiting = WaitQueue(self._kernel)

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *exception: Any) -> None:
        self._lock.__exit__(*exception)

    def wait(self, timeout: float | None = None) -> bool:
        self._require_lock("wait on")
        enter(self._kernel, within=True)
        waiter = self._waiting.arrive()  # before the release, so that no notify is missed
        depth = self._lock._release_save()
        try:
            return self._waiting.park(waiter, timeout, lambda: f"a notification of {self}")
        finally:
            if not self._kernel.closing:
                self._lock._acquire_restore(depth)

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        kernel = self._kernel
        end_ns = None if timeout is None else kernel.now_ns + timeout_ns(timeout)
        result = predicate()
        while not result:
            if end_ns is not None and end_ns <= kernel.now_ns:
                break
            self.wait(None if end_ns is None else ns_to_seconds(end_ns - kernel.now_ns))
            result = predicate()
        return result

    def notify(self, n: int = 1) -> None:
        self._kernel.checkpoint(within=True)
        if self._kernel.closing:
            return
        self._require_lock("notify on")
        for _ in range(n):
            if self._waiting.wake_first() is None:
                return

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    notifyAll = notify_all

    def _require_lock(self, verb: str) -> None:
        if not self._lock._is_owned():
            raise RuntimeError(f"cannot {verb} un-acquired lock")


P = TypeVar("P", bound=Primitive)


def on(kernel: Kernel, cls: type[P], *args: Any) -> P:
    """An instance of an unbound class, for the facades' own use."""
    instance = cls.__new__(cls)
    instance.__dict__["_kernel"] = kernel
    instance.__init__(*args)  # type: ignore[misc]
    return instance


def bind(kernel: Kernel, cls: type[T]) -> type[T]:
    """The class as guests see it in this run."""
    return type(cls.__name__, (cls,), {"_kernel": kernel, "__doc__": cls.__doc__})


def _check_timeout(blocking: bool, timeout: float) -> None:
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if timeout < 0 and timeout != -1:
        raise ValueError("timeout value must be positive")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
