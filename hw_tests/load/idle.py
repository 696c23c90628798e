"""Whether engines have given everything back, as their metrics say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp

from hw_tests.load.checks import Check
from hw_tests.recall.counters import read_metrics

_BUSY = (
    "vllm:kv_cache_usage_perc",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:hybrid_read_held_leases",
)
_LOOK_S = 0.1


async def blocks_come_back(
    session: aiohttp.ClientSession, urls: Sequence[str], within_s: float
) -> Check:
    """No block is used, no request runs or waits and no lease is held on any engine, in time."""
    deadline = time.monotonic() + within_s
    while (left := [line for url in urls for line in await _busy(session, url)]) and (
        time.monotonic() < deadline
    ):
        await asyncio.sleep(_LOOK_S)
    return Check("blocks come back", not left, "; ".join(left) or "all engines are idle")


async def _busy(session: aiohttp.ClientSession, url: str) -> list[str]:
    try:
        shown = await read_metrics(session, url)
    except ValueError as error:
        return [str(error)]
    missing = [f"{url}/metrics has no {name}" for name in _BUSY if name not in shown]
    return missing + [f"{url}: {n} is {shown[n]:g}" for n in _BUSY if shown.get(n)]
