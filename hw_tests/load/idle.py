"""Whether engines have given everything back, as their metrics say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from hw_tests.load.checks import Check

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
        async with session.get(f"{url}/metrics") as response:
            response.raise_for_status()
            text = await response.text()
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return [f"{url}/metrics: {type(error).__name__}"]
    values = dict.fromkeys(_BUSY, 0.0)
    seen = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in values:
                values[sample.name] += sample.value
                seen.add(sample.name)
    missing = [] if _BUSY[0] in seen else [f"{url}/metrics has no {_BUSY[0]}"]
    return missing + [f"{url}: {name} is {value:g}" for name, value in values.items() if value]
