"""Servers as processes: started, awaited, stopped, killed, started again, never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import aiohttp

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.05


class ServerFailed(Exception):
    """A server ended, or did not answer in time; the text has the end of its log."""


class Server:
    """One command that serves HTTP, in a session of its own.

    Args:
        name: for messages and the log.
        command: as in a shell, without its syntax; None for a server that somebody else starts.
        url: where it serves, without ``/v1``.
        logs: folder for its log, which its later lives go on with.
    """

    def __init__(self, name: str, command: str | None, url: str, logs: Path) -> None:
        self.name, self.url = name, url
        self.log = logs / f"{name}.log"
        self.is_ours = command is not None
        self._command = shlex.split(command or "")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises ServerFailed if there is no such command."""
        if not self.is_ours:
            return
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,
                )
            except OSError as error:
                raise ServerFailed(f"{self.name}: {self._command[0]}: {error.strerror}") from None

    async def ready(self, session: aiohttp.ClientSession, patience_s: float) -> None:
        """Wait until it answers ``/health``.

        Raises:
            ServerFailed: it ended, or does not answer within ``patience_s``.
        """
        deadline = time.monotonic() + patience_s
        while not await self.healthy(session):
            if not self.is_alive:
                raise ServerFailed(f"{self.name} ended before it was ready\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"{self.name} is not ready after {patience_s:g} s\n{self._last_words()}"
                )
            await asyncio.sleep(_LOOK_S)

    async def healthy(self, session: aiohttp.ClientSession) -> bool:
        """Whether it answers ``/health`` with 200."""
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with session.get(f"{self.url}/health", timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    @property
    def is_alive(self) -> bool:
        """Its process; of somebody else's server nothing is known, and it counts as alive."""
        if not self.is_ours:
            return True
        return self._process is not None and self._process.poll() is None

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
        """Its log, if it has one here."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _last_words(self) -> str:
        return self.told()[-3000:]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
