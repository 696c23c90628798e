"""A bar on stderr over many runs: how many are done and how many of them failed, the rate, and the
time that is left. Drawn for people only, and as wide as their terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from sim.stopwatch import wall_clock

Advance = Callable[[bool], None]
"""To be called after each run, with whether it counts as failed."""

_WORDS = 66  # columns that all the words take
_MOST_BAR = 40


@contextmanager
def bar(title: str, total: int, failed: str, *, threaded: bool = True) -> Iterator[Advance]:
    """Show how far ``total`` runs are; nothing where nobody looks.

    Args:
        title: what is done.
        total: so many runs there will be, or are at most.
        failed: the word behind the number of runs that count as failed.
        threaded: whether the bar may be drawn by a thread, which a process that simulates must
            not have; it is drawn after each run then.
    """
    if not sys.stderr.isatty():
        yield lambda is_failed: None
        return
    console = Console(stderr=True)
    columns = _columns(title, failed, console.width)
    with Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=threaded,
        redirect_stdout=threaded,
        redirect_stderr=threaded,
        get_time=wall_clock,
    ) as progress:
        task, count = progress.add_task("", total=total, failed=0), 0

        def advance(is_failed: bool) -> None:
            nonlocal count
            count += is_failed
            progress.update(task, advance=1, failed=count, refresh=not threaded)

        yield advance


def _columns(title: str, failed: str, width: int) -> list[ProgressColumn]:
    """What fits, the least important first to go."""
    counts = [MofNCompleteColumn(), TextColumn("{task.fields[failed]} " + failed)]
    left = [_TimeLeft()]
    if width >= _WORDS + 10:
        drawn = BarColumn(min(_MOST_BAR, width - _WORDS))
        return [TextColumn(title), drawn, *counts, _Rate(), *left]
    return [*counts, _Rate(), *left] if width >= _WORDS - 10 else [*counts, *left]


class _Rate(ProgressColumn):
    """Runs a minute since the beginning: single runs differ too much for less."""

    def render(self, task: Task) -> Text:
        return Text(f"{60 * rate:.3g} a minute" if (rate := _per_second(task)) else "")


class _TimeLeft(ProgressColumn):
    """At the rate so far."""

    def render(self, task: Task) -> Text:
        if not (rate := _per_second(task)) or task.remaining is None:
            return Text("")
        minutes, seconds = divmod(round(task.remaining / rate), 60)
        hours, minutes = divmod(minutes, 60)
        return Text(f"{hours}:{minutes:02}:{seconds:02} left")


def _per_second(task: Task) -> float:
    return task.completed / task.elapsed if task.elapsed else 0.0
