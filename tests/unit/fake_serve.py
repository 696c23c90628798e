"""``vllm serve`` as far as a router and clients see it, as a command, with defects on request.

A prefill engine holds the blocks of a prompt until they are read or released by time; a decode
engine reads them over HTTP, and fails the request if that fails. The answer depends on the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

LEASE_S = 2.5
_READ_S = 2.0
"""Long enough for a machine on which others take the processors."""


class Engine:
    """``defect``: what a decode engine does that cannot read: "", "leaks", "lies" or "dies"; or of
    a prefill engine, "keeps": what nobody reads it holds for ever."""

    def __init__(self, url: str, step_s: float, defect: str, model: str) -> None:
        self._url, self._step_s, self._defect, self._model = url, step_s, defect, model
        self._held: dict[str, asyncio.TimerHandle] = {}
        self._numbers = itertools.count()
        self._counts = dict.fromkeys(("loads", "failed", "drafts"), 0)
        self._running = self._leaked = 0

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/blocks/{name}", self._read)
        return app

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        params = body.get("kv_transfer_params") or {}
        self._running += 1
        try:
            await asyncio.sleep(self._step_s)
            if params.get("do_remote_decode"):
                return web.json_response(self._answer(body) | {"kv_transfer_params": self._hold()})
            if "remote" in params and not await self._load(params["remote"]):
                self._counts["failed"] += 1
                self._leaked += self._defect == "leaks"
                if self._defect == "dies":
                    raise SystemExit(1)
                if self._defect != "lies":
                    return web.json_response({"error": "a read failed"}, status=500)
                return web.json_response(self._answer({**body, "prompt": [1]}))
            self._counts["drafts"] += 10
            return web.json_response(self._answer(body))
        finally:
            self._running -= 1

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        tokens = prompt.encode() if isinstance(prompt, str) else prompt
        text = f" {sum(index * token for index, token in enumerate(tokens, 1)) % 99_991}"
        return {"choices": [{"text": text, "finish_reason": "length"}]}

    def _hold(self) -> dict[str, Any]:
        name = f"hold-{next(self._numbers)}"
        lease_s = 1e6 if self._defect == "keeps" else LEASE_S
        loop = asyncio.get_running_loop()
        self._held[name] = loop.call_later(lease_s, self._held.pop, name)
        return {"remote": f"{self._url}/blocks/{name}"}

    async def _load(self, remote: str) -> bool:
        timeout = aiohttp.ClientTimeout(total=_READ_S)
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(remote) as got,
            ):
                self._counts["loads"] += got.status == 200
                return got.status == 200
        return False

    async def _read(self, request: web.Request) -> web.Response:
        timer = self._held.pop(request.match_info["name"], None)
        if timer is None:
            return web.Response(status=404)
        timer.cancel()
        return web.Response()

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "a-model", "root": self._model}]})

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "0.33.0"})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _request: web.Request) -> web.Response:
        used = (len(self._held) + self._running + self._leaked) / 100
        values = {
            "kv_cache_usage_perc": used,
            "num_requests_running": self._running,
            "num_requests_waiting": 0,
            "hybrid_read_held_leases": len(self._held),
            "hybrid_read_loads_total": self._counts["loads"],
            "hybrid_read_failed_loads_total": self._counts["failed"],
            "hybrid_read_verified_loads_total": self._counts["loads"],
            "spec_decode_num_drafts_total": self._counts["drafts"],
            "spec_decode_num_draft_tokens_total": self._counts["drafts"],
            "spec_decode_num_accepted_tokens_total": self._counts["drafts"] * 0.8,
        }
        lines = (f'vllm:{name}{{engine="0"}} {value}\n' for name, value in values.items())
        return web.Response(text="".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step", type=float, default=0.02)
    parser.add_argument("--defect", default="")
    parser.add_argument("--verify_reads")
    parser.add_argument("--model", default="/models/a-model")
    parser.add_argument("--says", type=Path, help="a file with what it logs at its start")
    given = parser.parse_args()
    if given.says:
        print(given.says.read_text(), flush=True)
    engine = Engine(f"http://127.0.0.1:{given.port}", given.step, given.defect, given.model)
    web.run_app(engine.app(), host="127.0.0.1", port=given.port, print=None)
