"""What is done to the producer while requests run, and how it is whole again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import aiohttp

from hw_tests.load.servers import Server

Act = Callable[[Server, aiohttp.ClientSession, float, float], Awaitable[None]]
"""Called with the producer, its patience in seconds, and how long it is to be away."""


async def _killed(
    producer: Server, session: aiohttp.ClientSession, patience_s: float, away_s: float
) -> None:
    producer.kill()
    await asyncio.sleep(away_s)
    producer.start()
    await producer.ready(session, patience_s)


async def _stopped(
    producer: Server, session: aiohttp.ClientSession, patience_s: float, away_s: float
) -> None:
    producer.suspend()
    await asyncio.sleep(away_s)
    producer.resume()
    await producer.ready(session, patience_s)


async def _restarted(
    producer: Server, session: aiohttp.ClientSession, patience_s: float, away_s: float
) -> None:
    await _killed(producer, session, patience_s, 0.0)


ACTS: Final[dict[str, Act]] = {"killed": _killed, "stopped": _stopped, "restarted": _restarted}
MUST_FAIL: Final = ("killed",)
"""Acts under which some request is asked of a producer that is not there, so one has to fail."""
