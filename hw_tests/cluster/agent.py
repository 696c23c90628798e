"""On one host of two: starts engines there and passes commands on to them.

Reads requests from standard input, and writes what processes have logged and then the answer to
standard output, a line each (`wire`). Runs below a `supervisor`, which ends all of it.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from hw_tests.child import Child, ChildFailed
from hw_tests.cluster.facts import facts_of
from hw_tests.cluster.suites import NOT_OF_A_RUN
from hw_tests.cluster.wire import pack, unpack
from hw_tests.process.launcher import Launcher, ProcessEnded, RemoteProcess, free_port
from hw_tests.same_server import refuse_taken

_CONNECT_S = 5.0


class Answer(NamedTuple):
    """To a request.

    Args:
        number: of the request.
        kind: ``done``, ``ended`` if the process that was asked has ended, ``failed``.
        value: the result, or what went wrong.
    """

    number: int
    kind: str
    value: Any


class LogPiece(NamedTuple):
    """What a process has written since the last piece."""

    name: str
    content: bytes


OUT = "{out}"
"""In words of a command that runs here, and in what it has written: a new folder, of which all
files are sent back."""


class Ended(NamedTuple):
    """What became of a command.

    Args:
        exit_code: of it.
        output: all that it has written, of either kind.
        files: that it left in its folder, by their path there.
    """

    exit_code: int
    output: str
    files: dict[str, bytes]


class Agent:
    """A public method is a request; processes go by the numbers that ``start`` has returned."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="agent-"))
        self._preload: Sequence[str] = ()
        self._sent: dict[Path, int] = {}
        self._listening: list[socket.socket] = []
        self._serving: dict[str, Child] = {}

    @cached_property
    def _launcher(self) -> Launcher:
        return Launcher(self._preload, self._folder)

    def facts(self, arm: str) -> dict[str, Any]:
        """What this machine is."""
        return facts_of(arm)

    def free_port(self) -> int:
        return free_port("")

    def listen(self, number: int) -> list[int]:
        """Ports of as many sockets, which answer nothing, for as long as this process lives."""
        listening = [socket.create_server(("", 0)) for _ in range(number)]
        self._listening += listening
        return [each.getsockname()[1] for each in listening]

    def unreached(self, address: str, ports: Sequence[int]) -> str:
        """Why this host gets no connection to one of the ports; empty if it gets one to each."""
        for port in ports:
            try:
                socket.create_connection((address, port), timeout=_CONNECT_S).close()
            except OSError as error:
                return f"{address}:{port}: {error}"
        return ""

    def preload(self, modules: Sequence[str]) -> None:
        """What is loaded once for all processes; before the first is started."""
        self._preload = modules

    def start(self, name: str, program: str, argument: Any) -> tuple[int, str]:
        """Its number and the name of its log."""
        process = self._launcher.start(name, program, argument)
        return len(self._launcher.started) - 1, process.log.name

    def call(self, number: int, command: str, arguments: dict[str, Any]) -> Any:
        return self._process(number).call(command, **arguments)

    def kill(self, number: int) -> None:
        self._process(number).kill()

    def suspend(self, number: int) -> None:
        self._process(number).suspend()

    def resume(self, number: int) -> None:
        self._process(number).resume()

    def exit_code(self, number: int) -> int:
        return self._process(number).exit_code()

    def is_alive(self, number: int) -> bool:
        return self._process(number).is_alive

    def pid(self, number: int) -> int:
        return self._process(number).pid

    def run(self, words: Sequence[str], deadline_s: float) -> Ended:
        """Run a command of this interpreter to its end; `OUT` in its words is its folder.

        What this host's environment tells pytest is not of the run.
        """
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        command = [sys.executable, "-m", "hw_tests.cluster.supervisor", f"--deadline={deadline_s}"]
        command += ["--", sys.executable, *(word.replace(OUT, str(folder)) for word in words)]
        environment = {name: it for name, it in os.environ.items() if name not in NOT_OF_A_RUN}
        # The pipe to its supervisor closes with this process, whatever ends it.
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        ) as run:
            assert run.stdout is not None
            output = run.stdout.read().decode(errors="replace").replace(str(folder), OUT)
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return Ended(run.returncode, output, files)

    def serve(self, name: str, command: str, url: str) -> None:
        """Start a server, which goes on until this process ends; what it writes is a log here.

        Raises:
            ChildFailed: there is no such command, nothing could serve at its URL, or somebody
                else does.
        """
        refuse_taken(name, url)
        child = Child(name, shlex.split(command), self._folder / f"{name}.log")
        child.start()
        self._serving[name] = child

    def serves(self, name: str, url: str) -> bool:
        """Whether it answers ``/health``.

        Raises:
            ChildFailed: it has ended.
        """
        self._serving[name].check()
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=_CONNECT_S) as answer:
                return bool(answer.status == 200)
        except (OSError, HTTPException):  # the latter of what answers, and not in HTTP
            return False

    def _process(self, number: int) -> RemoteProcess:
        return self._launcher.started[number]

    def new_logs(self) -> list[LogPiece]:
        """What was written since the last call."""
        pieces = []
        for log in sorted(self._folder.glob("*.log")):
            with log.open("rb") as stream:
                stream.seek(self._sent.get(log, 0))
                if content := stream.read():
                    pieces.append(LogPiece(log.name, content))
                self._sent[log] = stream.tell()
        return pieces


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not print into the answers
    agent = Agent()
    for line in sys.stdin.buffer:
        number, name, arguments = unpack(line)
        try:
            answer = Answer(number, "done", getattr(agent, name)(**arguments))
        except (ProcessEnded, ChildFailed) as error:
            answer = Answer(number, "ended", str(error))
        except Exception as error:
            answer = Answer(number, "failed", f"{type(error).__name__}: {error}")
        for message in (*agent.new_logs(), answer):
            answers.write(pack(message))
        answers.flush()


if __name__ == "__main__":
    from hw_tests.cluster import agent  # whose classes are pickled by a name that both ends know

    agent.main()
