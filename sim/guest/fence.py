"""The fence: guest code that reaches for the real world is stopped, with the place it did it.

While a task runs, a real sleep, thread start, socket or child process is an error for whoever
asks; a read of a real clock is one when guest code asks (libraries that stamp log lines are not
guests). Without this a missing facade would silently leak real time into a run.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sim.errors import FenceError
from sim.guest.imports import GUEST_ROOT
from sim.kernel import Kernel
from sim.kernel.task import call_site

_FORBIDDEN: tuple[tuple[Any, str, str], ...] = (
    (time, "sleep", "a real sleep"),
    (threading.Thread, "start", "the start of a real thread"),
    (socket.socket, "__init__", "a real socket"),
    (subprocess.Popen, "__init__", "a real child process"),
)
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@contextmanager
def fence(kernel: Kernel) -> Iterator[None]:
    """Guard the real world for the length of a run."""
    guards = [(owner, name, _forbid(kernel, owner, name, what)) for owner, name, what in _FORBIDDEN]
    guards += [(time, name, _forbid_guests(kernel, name)) for name in _CLOCKS]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in guards]
    for owner, name, guard in guards:
        setattr(owner, name, guard)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _forbid(kernel: Kernel, owner: Any, name: str, what: str) -> Callable[..., Any]:
    real = getattr(owner, name)

    def guard(*args: Any, **kwargs: Any) -> Any:
        if kernel.current() is None or kernel.closing:
            return real(*args, **kwargs)
        raise _violation(kernel, what)

    return guard


def _forbid_guests(kernel: Kernel, name: str) -> Callable[..., Any]:
    real = getattr(time, name)

    def guard() -> Any:
        if kernel.current() is not None and not kernel.closing:
            caller = str(sys._getframe(1).f_globals.get("__name__", ""))
            if caller.startswith(GUEST_ROOT + "."):
                raise _violation(kernel, f"time.{name}, a real clock,")
        return real()

    return guard


def _violation(kernel: Kernel, what: str) -> FenceError:
    error = FenceError(
        f"{what} was asked for at {call_site()}; code under test must see simulated ones only: "
        "give the module a facade, or make it a guest"
    )
    kernel.fail_run(error)
    return error
