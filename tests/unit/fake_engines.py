"""Engines that speak vLLM's HTTP, over real sockets: what a router and a client of one need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from hw_tests.router.app import Router, Timeouts
from hw_tests.router.engines import Engines

Body = dict[str, Any]

HOLD = {"v": 1, "hold": 2**63 + 1, "digest": "00ff", "later": [None, {"nested": 0.1}]}
"""What a connector that the router does not know might return."""


def tokens(text: str) -> list[str]:
    return text.split(" ")


class FakeEngine:
    """Answers completions with ``answer(prompt)``; a prefill leg also with ``params``."""

    def __init__(self, answer: Callable[[str], str] = lambda _prompt: "one two three") -> None:
        self.answer = answer
        self.params: Body | None = {"remote_block_ids": [[1, 2], [7]], "hybrid": HOLD}
        self.status = 200
        self.received: list[Body] = []
        self.headers: list[Mapping[str, str]] = []
        self.card: Body = {"id": "a-model", "root": "/models/a-model"}
        self.version: str | None = "0.33.0"
        self.metrics: Callable[[int], str] = lambda _requests: "vllm:kv_cache_usage_perc 0\n"
        """What it shows after so many requests."""
        self.dies_after: int | None = None
        """Pieces of a stream, after which the connection ends without a word."""
        self.gate = asyncio.Event()
        """Pieces of an answer wait for it after the first."""
        self.gate.set()
        self.started = asyncio.Event()
        self.aborted = asyncio.Event()

    @property
    def url(self) -> str:
        return str(self.server.make_url("")).rstrip("/")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeEngine]:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/health", self._health)
        self.server = TestServer(app)
        await self.server.start_server()  # with handler_cancellation
        try:
            yield self
        finally:
            self.gate.set()
            await self.server.close()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.received.append(body)
        self.headers.append(request.headers)
        self.started.set()
        try:
            if self.status != 200:
                return web.json_response({"error": {"message": "no blocks"}}, status=self.status)
            return await (self._stream if body.get("stream") else self._whole)(request, body)
        except asyncio.CancelledError:
            self.aborted.set()
            raise

    async def _whole(self, _request: web.Request, body: Body) -> web.Response:
        await self.gate.wait()
        answer: Body = {"choices": [{"text": self._text(body), "finish_reason": "stop"}]}
        answer["usage"] = {"prompt_tokens": len(tokens(str(body.get("prompt"))))}
        if body.get("kv_transfer_params", {}).get("do_remote_decode"):
            answer["kv_transfer_params"] = self.params
        return web.json_response(answer)

    async def _stream(self, request: web.Request, body: Body) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        for index, token in enumerate(tokens(self._text(body))):
            if index == self.dies_after:
                assert request.transport is not None
                request.transport.abort()
            await response.write(b"data: " + token.encode() + b"\n\n")
            await self.gate.wait()
        await response.write(b"data: [DONE]\n\n")
        return response

    def _text(self, body: Body) -> str:
        return self.answer(str(body.get("prompt", "")))

    async def _models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self.card]})

    async def _version(self, _request: web.Request) -> web.Response:
        if self.version is None:
            raise web.HTTPNotFound
        return web.json_response({"version": self.version})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(text=self.metrics(len(self.received)))

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=self.status)


@asynccontextmanager
async def running_router(
    prefill: list[str], decode: list[str], timeouts: Timeouts | None = None, retries: int = 0
) -> AsyncIterator[str]:
    """The base URL of a router in front of engines."""
    router = Router(
        Engines("prefill", prefill), Engines("decode", decode), timeouts or Timeouts(), retries
    )
    server = TestServer(router.app())
    await server.start_server()  # with handler_cancellation
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()
