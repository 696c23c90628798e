"""One request's way: to a prefill engine, then to a decode engine, and the answer back.

Nothing here outlives the handler that runs it. When a client goes away aiohttp cancels the handler,
and with it whichever leg is under way: its connection closes, and vLLM aborts the request.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

import aiohttp
from aiohttp import web

from hw_tests.router.engines import Kind
from hw_tests.router.errors import RouterError
from hw_tests.router.legs import PARAMS, Body, prefill_leg

_log = logging.getLogger(__name__)


async def prefill(
    session: aiohttp.ClientSession, url: str, body: Body, headers: Mapping[str, str], transfer: str
) -> Body:
    """What the prefill engine at ``url`` answers.

    Raises:
        RouterError: it did not, or refused the request.
    """
    with _blaming("prefill", url):
        async with session.post(url, json=prefill_leg(body, transfer), headers=headers) as answer:
            await _raise_refusal("prefill", url, answer)
            text = await answer.text()
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    if not isinstance(parsed, dict):
        raise RouterError(502, f"the prefill engine {url} answered {parsed!r:.80}, not an object")
    if parsed.get(PARAMS) is None:
        _log.warning("%s: %s hands nothing over, so the prompt is computed again", transfer, url)
    return parsed


async def decode(
    session: aiohttp.ClientSession,
    url: str,
    leg: Body,
    headers: Mapping[str, str],
    request: web.Request,
) -> web.StreamResponse:
    """Hand the decode engine's answer on as it comes.

    Raises:
        RouterError: there was none, or a refusal; the client has got nothing yet. A failure later
            breaks the client's connection off, so that half an answer is not taken for a whole one.
    """
    with _blaming("decode", url):
        answer = await session.post(url, json=leg, headers=headers)
    async with answer:
        with _blaming("decode", url):
            await _raise_refusal("decode", url, answer)
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        response.headers["X-Request-Id"] = headers["X-Request-Id"]
        await response.prepare(request)
        try:
            async for chunk in _chunks(url, answer):
                await response.write(chunk)
        except RouterError as error:
            _log.error("%s: broken off: %s", headers["X-Request-Id"], error.message)
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
    return response


async def _chunks(url: str, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """What the decode engine sends; its failures, and not those of the client's connection."""
    with _blaming("decode", url):
        async for chunk in answer.content.iter_any():
            yield chunk


async def _raise_refusal(kind: Kind, url: str, answer: aiohttp.ClientResponse) -> None:
    """The client's mistakes keep their status; what an engine could not do is a bad gateway."""
    if answer.status < 400:
        return
    text = (await answer.content.read(2000)).decode(errors="replace")
    status = answer.status if answer.status < 500 else 502
    raise RouterError(status, f"the {kind} engine {url} answered {answer.status}: {text}")


@contextmanager
def _blaming(kind: Kind, url: str) -> Iterator[None]:
    """Failures of a connection become the engine's."""
    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, TimeoutError):  # and aiohttp's are that
            message = f"the {kind} engine {url} was silent for too long ({cause})"
            raise RouterError(504, message) from None
        what = "cannot be reached" if isinstance(error, aiohttp.ClientConnectorError) else "failed"
        raise RouterError(502, f"the {kind} engine {url} {what} ({cause})") from None
