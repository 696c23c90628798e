"""Undisturbed phases of a run of load, with engines in this process, and a trace for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
from fake_engines import FakeEngine, running_router

from hw_tests.load.run import Plan, Run, Servers, document
from hw_tests.load.send import Limits
from hw_tests.load.servers import Server

_GAP_MS = 25


def write_trace(path: Path, requests: int = 24) -> Path:
    """Mooncake's form; every third prompt begins like the first."""
    lines = [
        {"timestamp": number * _GAP_MS, "input_length": 600, "output_length": 5,
         "hash_ids": [0 if number % 3 == 0 else 100 + number, 200 + number]}
        for number in range(requests)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


async def undisturbed(
    tmp_path: Path,
    *,
    verified: int = 2,
    is_verified: bool = True,
    change: Callable[[list[FakeEngine]], object] = lambda _engines: None,
    leaves_out: str = "nothing",
    has_drafts: bool = True,
    no_drafts: bool = False,
) -> dict[str, Any]:
    """The document of two undisturbed phases with engines that somebody else has started; of each
    two loads so many are verified.

    Args:
        change: does something to prefill, decode and control.
        leaves_out: a metric that none of them shows.
        has_drafts: whether they count some.
        no_drafts: whether the command line says that there are none.
    """
    engines = [FakeEngine() for _ in range(3)]
    counted = {"hybrid_read_loads": 2, "hybrid_read_verified_loads": verified,
               "hybrid_read_failed_loads": 0}  # fmt: skip
    drafts = dict.fromkeys(
        ("spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"), 10 * has_drafts
    )
    idle = ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting",
            "hybrid_read_held_leases")  # fmt: skip
    for engine, counters in zip(engines, (counted, counted | drafts, drafts), strict=True):
        engine.metrics = lambda requests, counters=counters: "".join(
            f"vllm:{name} {value}\n"
            for name, value in (
                *((f"{name}_total", each * requests) for name, each in counters.items()),
                *((name, 0) for name in idle),
            )
            if name != leaves_out
        )  # type: ignore[misc]
    change(engines)
    limits = Limits(2, 600, 5, 0.1, 1000)
    trace = write_trace(tmp_path / "trace.jsonl")
    plan = Plan(trace, limits, [], 0.1, 20, 0.1, 60, 0.1, exact=False,
                is_verified=is_verified, has_drafts=not no_drafts)  # fmt: skip
    async with AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.running())
        router = running_router([engines[0].url], [engines[1].url])
        urls = [*(engine.url for engine in engines), await stack.enter_async_context(router)]
        names = ("prefill", "decode", "control", "router")
        each = (Server(name, None, url, tmp_path) for name, url in zip(names, urls, strict=True))
        servers = Servers(*each)
        run = Run(plan, servers, await stack.enter_async_context(aiohttp.ClientSession()))
        await run.start()
        phases = [phase async for phase in run.phases()]
        return document(plan, phases, {}, None, run.engines)


def seen_as(found: dict[str, Any], passed: bool | None) -> set[tuple[str, str]]:
    """Names of the checks that ended so, and what they saw."""
    return {(one["name"], one["seen"]) for phase in found["phases"] for one in phase["checks"]
            if one["passed"] is passed}  # fmt: skip
