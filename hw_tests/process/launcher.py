"""Starts processes for a test, and never leaves one behind.

They are forks of a server that has loaded what is slow to load. Each is in a session of its own, so
that Ctrl-C reaches the test alone, which then kills them; if the test dies in any other way, the
server ends, and the kernel kills its children.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pkgutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from hw_tests.child import die_with_parent
from hw_tests.process.messages import HOST

PATIENCE_S = 60.0
"""For anything that has no deadline of its own; a busy machine is slow."""
_LOOK_S = 0.02


class ProcessEnded(AssertionError):
    """A process that was to answer has ended; the text has the end of its log."""


class AnyProcess(Protocol):
    """A process of this machine, or of another one."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Path: ...
    @property
    def pid(self) -> int: ...
    @property
    def is_alive(self) -> bool: ...

    def call(self, command: str, **arguments: Any) -> Any: ...
    def kill(self) -> None: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def exit_code(self) -> int: ...


class AnyLauncher(Protocol):
    """What starts processes, with the address at which others reach them."""

    @property
    def address(self) -> str: ...

    def start(self, name: str, program: str, argument: Any) -> AnyProcess: ...
    def free_port(self) -> int: ...
    def close(self) -> None: ...


class Launcher:
    """Starts processes; ``close`` ends them all. The server is one for all launchers of a process.

    Args:
        preload: modules that the server loads, once for all.
        logs: where what the processes write is kept, a file for each.
    """

    address = HOST

    def __init__(self, preload: Sequence[str], logs: Path) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preload))
        self._logs = logs
        self.started: list[RemoteProcess] = []
        atexit.register(self.close)  # before multiprocessing waits for them

    def start(self, name: str, program: str, argument: Any) -> RemoteProcess:
        """Start a process and wait until it has sent its first message.

        Args:
            name: of the process.
            program: module and function, as in ``package.module:function``. It is called with a
                connection, on which commands arrive, and ``argument``.
            argument: of the program.
        """
        log = self._logs / f"{len(self.started)}-{name}.log"
        started = RemoteProcess(self._context, name, log, program, argument)
        self.started.append(started)
        return started.wait_until_ready()

    def free_port(self) -> int:
        return free_port()

    def close(self) -> None:
        for process in self.started:
            process.kill()


class RemoteProcess:
    """A process, and commands to it. Made by `Launcher.start`."""

    def __init__(self, context: Any, name: str, log: Path, program: str, argument: Any) -> None:
        self.name = name
        self.log = log
        self._commands, theirs = context.Pipe()
        self._process = context.Process(
            target=_run, args=(program, theirs, argument, log), name=name, daemon=True
        )
        self._process.start()
        theirs.close()

    def wait_until_ready(self) -> RemoteProcess:
        self._receive(PATIENCE_S)
        return self

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def call(self, command: str, **arguments: Any) -> Any:
        """What the command returns.

        Raises:
            ProcessEnded: the process ended meanwhile.
        """
        try:
            self._commands.send((command, arguments))
        except OSError:
            raise self._ended() from None
        return self._receive(PATIENCE_S)

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self._commands.poll(timeout_s):
                raise AssertionError(f"{self.name} does not answer within {timeout_s:g} s")
            return self._commands.recv()
        except (EOFError, OSError):
            raise self._ended() from None

    def _ended(self) -> ProcessEnded:
        self._process.join(PATIENCE_S)
        return ProcessEnded(
            f"{self.name} has ended with exit code {self._process.exitcode}\n"
            f"{self.log.read_text()[-3000:]}"
        )

    def kill(self) -> None:
        """As ``kill -9``; returns when it is gone."""
        self._process.kill()
        with contextlib.suppress(ProcessLookupError):  # what it has started, if it has
            os.killpg(self.pid, signal.SIGKILL)
        self._process.join(PATIENCE_S)

    def suspend(self) -> None:
        """As ``kill -STOP``; returns when no thread of it runs any more."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: _state_of(self.pid) == "T", f"{self.name} stops")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def exit_code(self) -> int:
        """Wait for its end."""
        self._process.join(PATIENCE_S)
        assert self._process.exitcode is not None, f"{self.name} does not end"
        return int(self._process.exitcode)


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait until ``condition`` gives something true, and return that."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(_LOOK_S)
    return found


def free_port(address: str = HOST) -> int:
    """That nothing on this machine listens on."""
    with contextlib.closing(socket.create_server((address, 0))) as raw:
        return int(raw.getsockname()[1])


def _run(program: str, commands: Connection, argument: Any, log: Path) -> None:
    """The first that a process does."""
    os.setsid()
    _let_the_server_end()
    die_with_parent()
    test = multiprocessing.parent_process()
    if test is None or not test.is_alive():  # before the call took effect
        os._exit(1)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    pkgutil.resolve_name(program)(commands, argument)


def _let_the_server_end() -> None:
    """It waits for the end of a pipe that the test holds, and each of its children does, too."""
    server: Any = forkserver._forkserver
    os.close(server._forkserver_alive_fd)
    server._forkserver_alive_fd = None


def _state_of(pid: int) -> str:
    """A letter, as ``ps`` shows it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
