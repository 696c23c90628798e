"""Servers as processes: started, awaited, stopped, killed, started again, never left behind."""

from __future__ import annotations

import asyncio
import shlex
import time
from pathlib import Path

import aiohttp

from hw_tests.child import Child, ChildFailed
from hw_tests.same_server import refuse_taken

_LOOK_S = 0.05


class Server:
    """What serves HTTP at a URL.

    Args:
        name: for messages and the log.
        command: as in a shell, without its syntax; None for a server that somebody else starts.
        url: where it serves, without ``/v1``.
        logs: folder for its log.
    """

    def __init__(self, name: str, command: str | None, url: str, logs: Path) -> None:
        self.name, self.url = name, url
        self.log = logs / f"{name}.log"
        self.process = None if command is None else Child(name, shlex.split(command), self.log)

    def start(self) -> None:
        """Raises ChildFailed if there is no such command, nothing could serve at its URL, or
        somebody else does."""
        if self.process is not None:
            refuse_taken(self.name, self.url)
            self.process.start()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    async def ready(self, session: aiohttp.ClientSession, patience_s: float) -> None:
        """Wait until it answers ``/health``.

        Raises:
            ChildFailed: it ended, or does not answer within ``patience_s``.
        """
        deadline = time.monotonic() + patience_s
        while not await self.healthy(session):
            if self.process is not None:
                self.process.check()
            if time.monotonic() > deadline:
                said = "" if self.process is None else self.process.last_words()
                raise ChildFailed(f"{self.name} is not ready after {patience_s:g} s\n{said}")
            await asyncio.sleep(_LOOK_S)

    async def healthy(self, session: aiohttp.ClientSession) -> bool:
        """Whether it answers ``/health`` with 200."""
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            async with session.get(f"{self.url}/health", timeout=timeout) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
