"""A simulated thread: a greenlet that parks on events of the virtual clock."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import greenlet

from sim.kernel.plain_text import short_path
from sim.kernel.process import Process


class Task(greenlet.greenlet):
    """One thread of a simulated process. Created through ``Kernel.spawn`` only.

    A guest task runs code under test: an exception ends the thread and is recorded, as an
    uncaught exception ends a Python thread. Any other task belongs to the testbed, where an
    exception ends the run. A task that stands for a thread of native code needs no GIL.
    """

    def __init__(
        self,
        run: Callable[[], None],
        parent: greenlet.greenlet,
        *,
        process: Process,
        name: str,
        number: int,
        guest: bool,
        needs_gil: bool = True,
    ) -> None:
        super().__init__(run, parent)
        self.process = process
        self.name = name
        self.number = number
        self.guest = guest
        self.needs_gil = needs_gil
        self.killed = False
        self.finished = False
        self.park_number = 0
        self.waiting_for: str | Callable[[], str] = ""
        self.locals: dict[Any, Any] = {}

    @property
    def path(self) -> str:
        return f"{self.process.path}/{self.name}"

    def describe_wait(self) -> str:
        """Who waits for what and where, for a deadlock report."""
        waiting = self.waiting_for if isinstance(self.waiting_for, str) else self.waiting_for()
        return f"{self.path} waits for {waiting or 'its first turn'} at {self._call_site()}"

    def _call_site(self) -> str:
        frame: FrameType | None = self.gr_frame
        inner = frame
        while frame is not None:
            if not str(frame.f_globals.get("__name__", "")).startswith("sim."):
                return _place(frame)
            frame = frame.f_back
        return _place(inner) if inner is not None else "(not started)"


def call_site(skip_prefix: str = "sim.", depth: int = 1) -> str:
    """``file:line in function`` of the innermost caller outside ``skip_prefix`` modules."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(skip_prefix):
        frame = frame.f_back
    return _place(frame) if frame is not None else "(unknown)"


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{short_path(code.co_filename)}:{frame.f_lineno} in {code.co_qualname}"


@dataclass(frozen=True)
class TaskFailure:
    """An exception that ended a guest task."""

    time_ns: int
    task: str
    node: str
    exception: BaseException

    def text(self) -> str:
        return "".join(traceback.format_exception(self.exception))
