"""A simulated thread: a greenlet that parks on events of the virtual clock."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import greenlet

from sim.kernel.frames import outside_testbed, place
from sim.kernel.process import Process

if TYPE_CHECKING:
    from sim.kernel.polling import PollingLoop


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
        self.polling_loop: PollingLoop | None = None
        """The engine's, in whose looks it works."""
        self.own_loop: PollingLoop | None = None
        """Of this thread alone, whatever else it works in."""
        self.waiting_for: str | Callable[[], str] = ""
        self.goes_on_within = False
        """Whether the code that goes on then is seen by nobody outside the process."""
        self.locals: dict[Any, Any] = {}

    @property
    def ends_look(self) -> bool:
        """Whether the next sleep is the engine's, between two of its looks."""
        return self.polling_loop is not None and self.polling_loop.will_sleep_next

    def loop_that_sleeps(self) -> PollingLoop | None:
        """Whose next look it is that the wait which begins now waits for."""
        for loop in (self.polling_loop, self.own_loop):
            if loop is not None and loop.takes_sleep():
                return loop
        return None

    @property
    def path(self) -> str:
        return f"{self.process.path}/{self.name}"

    def describe_wait(self) -> str:
        """Who waits for what and where, for a deadlock report."""
        waiting = self.waiting_for if isinstance(self.waiting_for, str) else self.waiting_for()
        inner: FrameType | None = self.gr_frame
        at = "" if inner is None else f" at {_call_site_from(inner)}"
        return f"{self.path} waits for {waiting or 'its first turn'}{at}"


def call_site() -> str:
    """``module:line in function`` of the innermost caller that is not the testbed's.

    Never a line of the testbed: the text may be part of the record of a run, which has to be the
    same after an edit there.
    """
    return _call_site_from(sys._getframe(1))


def _call_site_from(inner: FrameType) -> str:
    frame = outside_testbed(inner)
    return "a place of the testbed" if frame is None else place(frame)


@dataclass(frozen=True)
class TaskFailure:
    """An exception that ended a guest task."""

    time_ns: int
    task: str
    owner: str
    exception: BaseException

    def text(self) -> str:
        return "".join(traceback.format_exception(self.exception))
