"""``make demo``: a workload that passes, a real defect that is found, and its counterpart.

Exit code 0 when everything went as announced, 3 when anything did not.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule

from faults.cli import signals
from faults.cli.outcome import plain_console, unpadded
from faults.cli.reexec import ReexecError, settle_process
from sim.errors import TestbedError, UsageError

if TYPE_CHECKING:
    from faults.demo_acts import Act

_WIDEST_RULE = 120


def main() -> int:
    """Run the demonstration in this process, once its environment is settled."""
    signals.heed_signals()
    try:
        settle_process()
    except ReexecError as error:
        print(f"faultlab demo: {error}", file=sys.stderr)
        return 2
    # Late on purpose: vLLM reads its environment when it is imported, and that takes seconds.
    from faults.cli import logs  # noqa: PLC0415

    logs.configure()
    console = Console() if sys.stdout.isatty() else plain_console(sys.stdout)
    console.print("faultlab demo: loading vLLM (its scheduler and connector run for real) ...")
    try:
        from faults.demo_acts import ACTS  # noqa: PLC0415

        code = show(ACTS, console)
        tell_the_path(console)
        return code
    except KeyboardInterrupt:
        code, message = signals.ending()
        print(message, file=sys.stderr)
        return code


def show(acts: Sequence[Act], console: Console) -> int:
    """Play the acts in order, up to the first that does not go as announced."""
    for act in acts:
        with _written_at_once(console):
            console.print(Rule(act.title, align="left"), width=min(console.width, _WIDEST_RULE))
            console.print(act.announcement)
        with _written_at_once(console):
            objection = _play(act, console)
            if objection is None:
                console.print(f"[bold green]as announced:[/] {act.proof}\n")
            else:
                console.print(f"[bold red]NOT as announced:[/] {escape(objection)}")
        if objection is not None:
            return 3
    return 0


@contextmanager
def _written_at_once(console: Console) -> Iterator[None]:
    """What is printed within goes to a file or a pipe as that of a command does, unpadded."""
    if console.file.isatty():
        yield
        return
    with console.capture() as captured:
        yield
    console.file.write(unpadded(captured.get()))
    console.file.flush()


def tell_the_path(console: Console) -> None:
    """How to type the commands above where ``make demo`` runs what the shell does not find."""
    if shutil.which("faultlab") is None:
        there = Path(os.path.relpath(Path(sys.executable).parent))
        command, activate = (shlex.quote(str(there / name)) for name in ("faultlab", "activate"))
        console.print(
            f"faultlab is not on your PATH: type {command} for it, or first: source {activate}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


def _play(act: Act, console: Console) -> str | None:
    try:
        return act.play(console)
    except (UsageError, TestbedError) as error:
        return f"the run did not come to an end: {type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
