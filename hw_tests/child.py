"""Processes of this machine: run to their end, or kept with a log until they are not wanted."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LAST_WORDS = 3000
SOURCES = Path(__file__).parents[1]
"""In this folder ``python -m`` takes what this process has, and not another copy."""


class ChildFailed(Exception):
    """A process did not start, ended badly or took too long; the text has its last words."""


def run_to_end(
    command: Sequence[str],
    timeout_s: float,
    environment: Mapping[str, str],
    given: str = "",
    folder: Path | None = None,
) -> str:
    """What a command writes to its standard output.

    Args:
        command: with its arguments.
        timeout_s: after which it is killed.
        environment: all of it.
        given: its standard input.
        folder: in which it runs; this process's by default.

    Raises:
        ChildFailed: it did not end in time, or not with exit code 0.
    """
    try:
        done = subprocess.run(
            command,
            input=given,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            cwd=folder,
        )
    except subprocess.TimeoutExpired:
        words = " ".join(word for word in command if "\n" not in word)  # but not a whole program
        raise ChildFailed(f"{words} did not end within {timeout_s:g} s") from None
    if done.returncode:
        raise ChildFailed(f"{_how_it_ended(done.returncode)}\n{done.stderr[-_LAST_WORDS:]}")
    return done.stdout


def _how_it_ended(code: int) -> str:
    return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when the one that has started it ends.

    Args:
        parent: its process id, with which it is noticed if it ended before the kernel was asked.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent not in (None, os.getppid()):
        os.kill(os.getpid(), signal.SIGKILL)


class Child:
    """A command in a session of its own, which writes to a log and ends with this process.

    Args:
        name: for messages.
        command: with its arguments.
        log: a file, which later lives of the command go on with.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name, self._command, self._log = name, command, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises ChildFailed if there is no such command."""
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=functools.partial(die_with_parent, os.getpid()),
                )
            except OSError as error:
                raise ChildFailed(f"{self.name}: {self._command[0]}: {error.strerror}") from None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def check(self) -> None:
        """Raises ChildFailed if it has ended."""
        if not self.is_alive:
            code = None if self._process is None else self._process.returncode
            raise ChildFailed(f"{self.name} has ended with exit code {code}\n{self.last_words()}")

    def kill(self) -> None:
        """As ``kill -9`` of it and its group; returns when it is gone."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()

    def suspend(self) -> None:
        """As ``kill -STOP``, of its group."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def told(self) -> str:
        """Its log so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def last_words(self) -> str:
        return self.told()[-_LAST_WORDS:]
