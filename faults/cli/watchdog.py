"""Says where a run is when virtual time stands still for long: for people, on stderr, never more.

The wall clock decides only whether the hint is printed; nothing of it reaches the run.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from sim.kernel.frames import is_guest, outside_testbed, place
from sim.units import ns_to_seconds

if TYPE_CHECKING:
    from sim.kernel import Kernel

_EVERY_S = 10.0


class _Watchdog:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._last_ns = -1
        self._told = False

    def look(self, _number: int, frame: FrameType | None) -> None:
        """Called by the alarm, in the middle of whatever runs; it must neither block nor switch,
        and writes to the file descriptor because the stream may be in use just now."""
        now_ns = self._kernel.now_ns
        if now_ns != self._last_ns:
            self._last_ns, self._told = now_ns, False
        elif not self._told and frame is not None:
            self._told = True
            os.write(2, self._hint(frame).encode())

    def _hint(self, frame: FrameType) -> str:
        task = self._kernel.current()
        who = "the testbed" if task is None else task.path
        return (
            f"faultlab: virtual time has stood at {ns_to_seconds(self._last_ns):.6f} s for "
            f"{_EVERY_S:g} s or more; {who} is at {_guest_place(frame)} (Ctrl-C ends the run)\n"
        )


def _guest_place(inner: FrameType) -> str:
    """Where code under test is; if there is none on the stack, whoever is at work."""
    frame: FrameType | None = inner
    while frame is not None and not is_guest(frame):
        frame = frame.f_back
    return place(frame or outside_testbed(inner) or inner)


@contextmanager
def watchdog(kernel: Kernel) -> Iterator[None]:
    """Look every ten seconds; does nothing outside the main thread or if the alarm is in use."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGALRM, _Watchdog(kernel).look)
    signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
