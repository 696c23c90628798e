"""What a command hands back, and the options and exit codes that all commands share."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import Console

from faults.cli import signals
from sim.errors import UsageError

SCHEMA_VERSION = 1
_UNLIMITED = 1 << 20


class ExitCode(IntEnum):
    """What the process tells its caller."""

    OK = 0
    VIOLATION = 1
    BAD_USAGE = 2
    TESTBED_FAILED = 3
    INTERRUPTED = signals.INTERRUPTED
    CANNOT_RUN = 125  # what git bisect takes for "skip this one"


class CannotRunError(UsageError):
    """There is nothing to judge, because what was to be replayed cannot run here."""


# Declares the option for --help. Commands need not look at it: dispatch prints the outcome.
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")
]
RunPath = Annotated[
    Path, typer.Argument(metavar="FILE_OR_DIR", help="The directory of a run, or a file in it.")
]


@dataclass(frozen=True)
class Outcome:
    """The result of a command in both of its forms; a command itself never prints to stdout.

    ``document`` is what ``--json`` prints (``schema_version`` is added), ``render`` writes the
    same for people.
    """

    document: Mapping[str, Any]
    render: Callable[[Console], None]
    exit_code: int = ExitCode.OK


def plain_text(render: Callable[[Console], None]) -> str:
    """For files and pipes: lines as long as they are, and nothing padded, unless COLUMNS says how
    wide a screen is meant."""
    screen = io.StringIO()
    render(plain_console(screen))
    return unpadded(screen.getvalue())


def plain_console(file: TextIO) -> Console:
    """A console for what is no terminal; ``unpadded`` is for what it has written."""
    return Console(file=file, width=None if "COLUMNS" in os.environ else _UNLIMITED)


def unpadded(text: str) -> str:
    """``text`` without blanks at the ends of its lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())
