"""A progress bar for one run: on stderr, for people, and only when it takes a while.

It is drawn from inside the run, so it starts no thread and reads no clock that a run is denied.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from sim.probes import Probe, StepTimes
from sim.stopwatch import wall_clock
from sim.units import ns_to_seconds

if TYPE_CHECKING:
    from sim.testbed import TestBed

_APPEARS_AFTER_S = 2.0
_REDRAWN_EVERY_S = 0.1


class RunProgress(Probe):
    """Counts requests that ended, and tells the virtual time."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("running"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("requests, {task.fields[virtual_s]:.1f} s virtual"),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            get_time=wall_clock,
        )
        self._bar = self._progress.add_task("", total=None, virtual_s=0.0)
        self._next_s = wall_clock() + _APPEARS_AFTER_S
        self._started = False
        self._awaited: dict[str, None] = {}
        self._ended = 0

    def watch(self, bed: TestBed) -> None:
        """Count what ``bed`` serves."""
        self._awaited = dict.fromkeys(request.request_id for request in bed.requests)
        self._progress.update(self._bar, total=len(self._awaited))
        bed.world.probes.add(self)

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self._ended += request_id in self._awaited

    def step_done(self, step: StepTimes) -> None:
        now_s = wall_clock()
        if now_s >= self._next_s:
            self._next_s = now_s + _REDRAWN_EVERY_S
            self._draw(ns_to_seconds(step.end_ns))

    def _draw(self, virtual_s: float) -> None:
        if not self._started:
            self._started = True
            self._progress.start()
        self._progress.update(self._bar, completed=self._ended, virtual_s=virtual_s)
        self._progress.refresh()

    def close(self) -> None:
        """Take the bar away."""
        if self._started:
            self._progress.stop()


@contextmanager
def progress(bed: TestBed) -> Iterator[None]:
    """Show how far ``bed`` is, if there is somebody to see it."""
    if not sys.stderr.isatty():
        yield
        return
    shown = RunProgress(Console(stderr=True))
    shown.watch(bed)
    try:
        yield
    finally:
        shown.close()
