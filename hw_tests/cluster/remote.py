"""The near side of a host: what `process.launcher` does here, done by an `agent` there.

The process that stands for the far side is the only one that is started here. It is gone when
``close`` returns, and the far side ends by itself when it is.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw_tests.cluster.agent import OUT, Answer, Ended, LogPiece
from hw_tests.cluster.wire import pack, unpack
from hw_tests.process.launcher import PATIENCE_S, ProcessEnded

BEAT_S = 2.0
"""Between two signs of life for the supervisor."""
_ANSWER_S = 5 * PATIENCE_S
"""For a request: the first engine of a host loads vLLM from a cold file system."""
_END_S = 15.0


class HostLost(AssertionError):
    """A host does not answer any more; the text has the end of what it said."""


class RemoteHost:
    """One host.

    Args:
        name: of the host.
        address: by which engines of other hosts reach it.
        command: stands for the far side.
        logs: a new folder for all that is written there.
    """

    def __init__(self, name: str, address: str, command: Sequence[str], logs: Path) -> None:
        self.name, self.address, self.logs = name, address, logs
        logs.mkdir(parents=True)
        self._said = logs / "host.log"
        self._answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        with self._said.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the tests, which then close it
            )
        for function in (self._read, self._beat):
            threading.Thread(target=function, daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the process that stands for the far side."""
        return self._process.pid

    # ------------------------------------------------ what a `Launcher` can do

    def start(self, name: str, program: str, argument: Any) -> RemoteHostProcess:
        number, log = self.ask("start", name=name, program=program, argument=argument)
        return RemoteHostProcess(self, number, name, self.logs / log)

    def free_port(self) -> int:
        return int(self.ask("free_port"))

    def close(self) -> None:
        """End everything there, and the process here; may be called again."""
        self._closing.set()
        if self._lock.acquire(timeout=BEAT_S):  # whoever writes to a stalled connection keeps it
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._lock.release()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    # --------------------------------------------------------- other requests

    def facts(self, arm: str) -> dict[str, Any]:
        facts: dict[str, Any] = self.ask("facts", _patience_s=4 * _ANSWER_S, arm=arm)
        return facts

    def listen(self, number: int) -> list[int]:
        ports: list[int] = self.ask("listen", number=number)
        return ports

    def unreached(self, address: str, ports: Sequence[int]) -> str:
        return str(self.ask("unreached", address=address, ports=list(ports)))

    def preload(self, modules: Sequence[str]) -> None:
        self.ask("preload", modules=list(modules))

    def run(self, name: str, words: Sequence[str], deadline_s: float) -> Ended:
        """Here is then what the command has written, in a log, and what it left, in a folder of
        that name, which is the one that its output names."""
        patience = deadline_s + PATIENCE_S
        ended: Ended = self.ask(
            "run", _patience_s=patience, words=list(words), deadline_s=deadline_s
        )
        left = self.logs / name
        said = ended.output.replace(OUT, str(left))
        self._keep(f"{name}.log", said.encode())
        for file, content in ended.files.items():
            path = left / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return ended._replace(output=said)

    def serve(self, name: str, command: str, url: str) -> None:
        self.ask("serve", name=name, command=command, url=url)

    def serves(self, name: str, url: str) -> bool:
        return bool(self.ask("serves", name=name, url=url))

    def ask(self, request: str, _patience_s: float = _ANSWER_S, **arguments: Any) -> Any:
        """The result of a request to the agent.

        Raises:
            HostLost: the connection is gone, or nothing came in time.
            ProcessEnded: the process that was asked has ended.
            AssertionError: the request has failed there.
        """
        number = next(self._numbers)
        try:
            self._send(pack((number, request, arguments)))
            answer = self._answer_to(number, _patience_s)
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self._answers.put(None)  # for whoever asks next
            raise HostLost(f"the connection to {self.name} is gone\n{self._last_words()}")
        if answer.kind == "done":
            return answer.value
        error = ProcessEnded if answer.kind == "ended" else AssertionError
        raise error(f"on {self.name}: {answer.value}")

    def _answer_to(self, number: int, patience_s: float) -> Answer | None:
        while True:
            try:
                answer = self._answers.get(timeout=patience_s)
            except queue.Empty:
                raise HostLost(f"{self.name} does not answer within {patience_s:g} s") from None
            if answer is None or answer.number == number:  # others were given up, and came late
                return answer

    def _last_words(self) -> str:
        return self._said.read_text(errors="replace")[-3000:]

    # ---------------------------------------------------------------- threads

    def _send(self, data: bytes) -> None:
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _beat(self) -> None:
        """Tell the supervisor that this side lives."""
        while not self._closing.wait(BEAT_S):
            try:
                self._send(b"\n")
            except (OSError, ValueError):
                return

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                message = unpack(line)
            except ValueError:
                self._keep("host.log", line)
                continue
            if isinstance(message, LogPiece):
                self._keep(Path(message.name).name, message.content)
            else:
                self._answers.put(message)
        self._answers.put(None)

    def _keep(self, name: str, content: bytes) -> None:
        with (self.logs / name).open("ab") as log:
            log.write(content)


@dataclass(frozen=True)
class RemoteHostProcess:
    """What `process.launcher.RemoteProcess` is here, there; all of it is said there."""

    host: RemoteHost
    number: int
    name: str
    log: Path

    @property
    def pid(self) -> int:
        return int(self.host.ask("pid", number=self.number))

    @property
    def is_alive(self) -> bool:
        return bool(self.host.ask("is_alive", number=self.number))

    def call(self, command: str, **arguments: Any) -> Any:
        return self.host.ask("call", number=self.number, command=command, arguments=arguments)

    def kill(self) -> None:
        self.host.ask("kill", number=self.number)

    def suspend(self) -> None:
        self.host.ask("suspend", number=self.number)

    def resume(self) -> None:
        self.host.ask("resume", number=self.number)

    def exit_code(self) -> int:
        return int(self.host.ask("exit_code", number=self.number))
