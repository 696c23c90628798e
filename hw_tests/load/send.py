"""A trace's requests, sent to a server at their times, and what came back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sim.workload import load_trace, prompt_token_ids, scale

_CHARACTER_BYTES = 4
"""Fewer tokens may be the beginning of one character, which is not shown."""


@dataclass(frozen=True)
class Limits:
    """Of what is taken of a trace.

    Args:
        requests: the first so many.
        max_prompt_tokens, max_output_tokens: of a request; the rest is cut off.
        time_scale: 0.1 makes requests arrive ten times faster.
        vocab_size: token ids are below this.
    """

    requests: int
    max_prompt_tokens: int
    max_output_tokens: int
    time_scale: float
    vocab_size: int


@dataclass(frozen=True)
class Request:
    """What is asked, and when, in seconds after the first."""

    name: str
    at_s: float
    prompt: list[int]
    max_tokens: int


@dataclass(frozen=True)
class Reply:
    """What came of a request.

    Args:
        status: of HTTP; 0 if there was no answer.
        text: of the completion, if it succeeded.
        error: the answer's text or what happened to the connection, if not.
        began_s, ended_s: on one clock for all.
    """

    name: str
    status: int
    text: str = ""
    error: str | None = None
    began_s: float = 0.0
    ended_s: float = 0.0

    @property
    def served(self) -> bool:
        return self.error is None


def requests_of(path: Path, limits: Limits, seed: int) -> list[Request]:
    """The trace's requests; another ``seed`` has the same shape with other tokens.

    Raises:
        UsageError: the trace cannot be read, or a limit is out of range.
    """
    specs = scale(
        load_trace(path, requests=limits.requests),
        time_scale=limits.time_scale,
        max_prompt_tokens=limits.max_prompt_tokens,
        max_output_tokens=limits.max_output_tokens,
    )
    return [
        Request(
            spec.request_id,
            spec.arrival_ns / 1e9,
            prompt_token_ids(spec, seed=seed, vocab_size=limits.vocab_size).tolist(),
            spec.max_tokens,
        )
        for spec in specs
    ]


async def send_all(
    session: aiohttp.ClientSession, url: str, model: str, requests: Sequence[Request]
) -> list[Reply]:
    """Each at its time, whether or not those before it are answered; replies in their order."""
    began = time.monotonic()

    async def one(request: Request) -> Reply:
        await asyncio.sleep(began + request.at_s - time.monotonic())
        return await _send(session, url, model, request)

    return list(await asyncio.gather(*(one(request) for request in requests)))


async def _send(session: aiohttp.ClientSession, url: str, model: str, request: Request) -> Reply:
    body = {"model": model, "prompt": request.prompt, "max_tokens": request.max_tokens}
    body |= {"temperature": 0, "seed": 0, "ignore_eos": True, "skip_special_tokens": False}
    began, status, text, error = time.monotonic(), 0, "", None
    try:
        async with session.post(f"{url}/v1/completions", json=body) as response:
            status = response.status
            if status == 200:
                text = _text(await response.json())
            else:
                error = (await response.text())[:1000] or f"status {status}"
    except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError, TimeoutError) as lost:
        error = f"{type(lost).__name__}: {lost}"
    return Reply(request.name, status, text, error, began, time.monotonic())


def _text(body: Any) -> str:
    choice = body["choices"][0]
    if choice.get("finish_reason") == "error":  # as an engine tells of a failed load in a stream
        raise ValueError("the completion ended with an error")
    text = str(choice["text"])
    tokens = (body.get("usage") or {}).get("completion_tokens") or 0
    if not text and not 0 < tokens < _CHARACTER_BYTES:
        raise ValueError(f"the completion is empty, of {tokens} tokens")
    return text
