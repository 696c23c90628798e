"""The fence: guest code that reaches for the real world is stopped, with the place it did it.

While a task runs, a real sleep, thread start, socket or child process is an error for whoever
asks, and so is chance that no seed decides (``entropy`` has what the run's seed does decide). A
read of a real clock is one when guest code asks (libraries that stamp log lines are not guests).
Without this a missing facade would silently leak real time into a run.

A guard is made once and asks which run there is: a module that is first imported during a run
keeps whatever it finds under ``time.sleep`` then, and must not be unguarded in the next run.
"""

from __future__ import annotations

import _thread
import selectors
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch

from sim.errors import FenceError
from sim.kernel import Kernel
from sim.kernel.plain_text import GUEST_ROOT
from sim.kernel.task import call_site

_FORBIDDEN: tuple[tuple[Any, str, str], ...] = (
    (time, "sleep", "a real sleep"),
    (threading.Thread, "start", "the start of a real thread"),
    (_thread, "start_new_thread", "the start of a real thread"),
    (socket.socket, "__init__", "a real socket"),
    (selectors.DefaultSelector, "select", "a real wait for files or sockets"),
    (subprocess.Popen, "__init__", "a real child process"),
    (uuid, "uuid1", "a UUID with the real time"),
    (torch, "seed", "a seed of the operating system"),
    (torch.random, "seed", "a seed of the operating system"),
)
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


class _Watch:
    """The run that is going on, if any."""

    kernel: Kernel | None = None

    def guarded(self) -> Kernel | None:
        """The kernel, while one of its tasks runs."""
        kernel = self.kernel
        if kernel is None or kernel.closing or kernel.current() is None:
            return None
        return kernel


_WATCH = _Watch()


@contextmanager
def fence(kernel: Kernel) -> Iterator[None]:
    """Guard the real world for the length of a run."""
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in _GUARDS]
    before, _WATCH.kernel = _WATCH.kernel, kernel
    for owner, name, guard in _GUARDS:
        setattr(owner, name, guard)
    try:
        yield
    finally:
        _WATCH.kernel = before
        for owner, name, original in originals:
            setattr(owner, name, original)


def _forbid(owner: Any, name: str, what: str) -> Callable[..., Any]:
    real = getattr(owner, name)

    def guard(*args: Any, **kwargs: Any) -> Any:
        kernel = _WATCH.guarded()
        if kernel is None:
            return real(*args, **kwargs)
        raise _violation(kernel, what)

    return guard


def _forbid_guests(name: str) -> Callable[..., Any]:
    real = getattr(time, name)

    def guard() -> Any:
        kernel = _WATCH.guarded()
        if kernel is not None:
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


_GUARDS = [
    *((owner, name, _forbid(owner, name, what)) for owner, name, what in _FORBIDDEN),
    *((time, name, _forbid_guests(name)) for name in _CLOCKS),
]
GUARDS_OF_TIME = MappingProxyType({name: guard for owner, name, guard in _GUARDS if owner is time})
"""What stands in the place of the functions of ``time`` during a run, by name."""
