"""The HTTP side: completions, chat completions, models and health."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from hw_tests.router.discovery import Discovery
from hw_tests.router.engines import Engines
from hw_tests.router.errors import RouterError
from hw_tests.router.exchange import decode, prefill
from hw_tests.router.legs import Body, check, decode_leg

_log = logging.getLogger(__name__)

_HEALTH_TIMEOUT = aiohttp.ClientTimeout(total=2)
_MAX_REQUEST_BYTES = 1 << 30  # aiohttp's own limit, 1 MiB, is below a long prompt


@dataclass(frozen=True)
class Timeouts:
    """Seconds. ``silence_s`` is between two pieces of an answer, and before the first: a request
    without a stream is silent until its end."""

    connect_s: float = 5.0
    silence_s: float = 600.0


class Router:
    """Serves on the application that ``app`` makes.

    Args:
        prefill, decode: the engines.
        timeouts: of both legs.
        retries: how often a request that failed is begun anew, with another prefill and transfer
            id, while its client has got nothing. A decode leg alone is never repeated: the first
            one may have let the prefill engine give its blocks to others.
        discovery: of engines that announce themselves.
    """

    def __init__(
        self,
        prefill: Engines,
        decode: Engines,
        timeouts: Timeouts,
        retries: int = 0,
        discovery: Discovery | None = None,
    ) -> None:
        self._prefill = prefill
        self._decode = decode
        self._timeouts = timeouts
        self._retries = retries
        self._discovery = discovery
        self._session: aiohttp.ClientSession

    def app(self) -> web.Application:
        """To be run with ``handler_cancellation``, by which a client that leaves ends its legs."""
        app = web.Application(client_max_size=_MAX_REQUEST_BYTES, middlewares=[_errors])
        app.cleanup_ctx.append(self._running)
        app.router.add_post("/v1/completions", self._serve)
        app.router.add_post("/v1/chat/completions", self._serve)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        times = self._timeouts
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=times.connect_s, sock_read=times.silence_s
        )
        # No limit, or the 101st client waits. No connection is used twice: vLLM closes idle ones
        # after 5 s, and a request that meets that fails for nothing.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        listening = asyncio.create_task(self._discovery.run()) if self._discovery else None
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self._session:
            yield
        if self._discovery and listening:
            listening.cancel()
            self._discovery.close()

    # -------------------------------------------------------------- requests

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            body = check(await request.json())
        except ValueError as error:
            raise RouterError(400, f"the request is no JSON: {error}") from None
        for _ in range(self._retries):
            try:
                return await self._attempt(request, body)
            except RouterError as error:
                if error.status < 500:
                    raise
                _log.warning("begun anew: %s", error.message)
        return await self._attempt(request, body)

    async def _attempt(self, request: web.Request, body: Body) -> web.StreamResponse:
        """Both legs, under one new id, by which the engines' logs know them."""
        transfer_id = f"tx-{uuid.uuid4().hex}"
        headers = {"X-Request-Id": transfer_id}
        if "Authorization" in request.headers:
            headers["Authorization"] = request.headers["Authorization"]
        producer, consumer = self._prefill.next(), self._decode.next()
        _log.info("%s: %s, then %s", transfer_id, producer, consumer)
        answer = await prefill(self._session, producer + request.path, body, headers, transfer_id)
        leg = decode_leg(body, answer)
        return await decode(self._session, consumer + request.path, leg, headers, request)

    async def _models(self, request: web.Request) -> web.Response:
        url = self._decode.next() + request.path
        headers = {k: v for k, v in request.headers.items() if k == "Authorization"}
        try:
            async with self._session.get(url, headers=headers, timeout=_HEALTH_TIMEOUT) as answer:
                return web.Response(
                    status=answer.status,
                    body=await answer.read(),
                    content_type=answer.content_type,
                )
        except (aiohttp.ClientError, OSError) as error:
            raise RouterError(502, f"{url} cannot be reached: {error!r}") from None

    # ---------------------------------------------------------------- health

    async def _health(self, _request: web.Request) -> web.Response:
        """Every engine's state by its URL; status 200 if there is a healthy one of each kind."""
        states = {kind.kind: await self._states(kind) for kind in (self._prefill, self._decode)}
        is_healthy = all("ok" in engines.values() for engines in states.values())
        return web.json_response(states, status=200 if is_healthy else 503)

    async def _states(self, engines: Engines) -> dict[str, str]:
        urls = engines.urls()
        return dict(zip(urls, await asyncio.gather(*map(self._state, urls)), strict=True))

    async def _state(self, url: str) -> str:
        try:
            async with self._session.get(url + "/health", timeout=_HEALTH_TIMEOUT) as answer:
                return "ok" if answer.status == 200 else f"answers {answer.status}"
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}"


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
    except RouterError as error:
        _log.error("%s %s: %d: %s", request.method, request.path, error.status, error.message)
        return error.response()
    return answer
