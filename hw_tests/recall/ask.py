"""Asks one server one question, and scores its answer."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp

from hw_tests.identity import served_model
from hw_tests.recall.texts import Needle, Text

Hit = Literal["none", "part", "whole"]
"""What of a prompt the decode engine has already: nothing (a text's first question), the text but
not the question (its others), all of it (the same question again)."""


@dataclass(frozen=True)
class Answer:
    """What came of one question.

    Args:
        arm: "router" or "control".
        words, seed: of the text.
        needle, depth, code: of the code that was asked for.
        hit: see ``Hit``; how much was found really is in ``cached_tokens``.
        text: the completion.
        prompt_tokens, cached_tokens: as the server counts them; None where it does not.
        seconds: until the whole answer was there.
        error: why there is none.
    """

    arm: str
    words: int
    seed: int
    needle: str
    depth: float
    code: str
    hit: Hit
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    seconds: float = 0.0
    error: str | None = None

    @property
    def found(self) -> bool:
        """Whether the first number of the answer is the code."""
        number = re.search(r"\d+", self.text)
        return number is not None and number[0] == self.code

    @property
    def question(self) -> tuple[int, int, str, Hit]:
        """The same on both arms."""
        return self.words, self.seed, self.needle, self.hit


@dataclass(frozen=True)
class Server:
    """Where questions go.

    Args:
        arm: "router" or "control".
        url: without ``/v1``.
        model: as the server calls it.
    """

    arm: str
    url: str
    model: str

    async def ask(
        self,
        session: aiohttp.ClientSession,
        text: Text,
        needle: Needle,
        hit: Hit,
        max_tokens: int,
    ) -> Answer:
        """One completion without sampling; a failure is an answer with an ``error``."""
        asked = Answer(self.arm, text.words, text.seed, needle.name, needle.depth, needle.code, hit)
        body = {"model": self.model, "prompt": text.prompt(needle), "max_tokens": max_tokens}
        began = time.monotonic()
        try:
            async with session.post(
                f"{self.url}/v1/completions", json=body | {"temperature": 0}
            ) as response:
                if response.status != 200:
                    error = f"status {response.status}: {(await response.text())[:2000]}"
                    return replace(asked, error=error, seconds=time.monotonic() - began)
                return replace(
                    _read(asked, await response.json()), seconds=time.monotonic() - began
                )
        except (aiohttp.ClientError, OSError, ValueError, LookupError, TypeError) as failure:
            error = f"{type(failure).__name__}: {failure}"
            return replace(asked, error=error, seconds=time.monotonic() - began)


def _read(asked: Answer, body: Any) -> Answer:
    usage = body.get("usage") or {}
    return replace(
        asked,
        text=str(body["choices"][0]["text"]),
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
    )


async def find_server(session: aiohttp.ClientSession, arm: str, url: str) -> Server:
    """The server at ``url`` and its model. Raises ValueError if there is none."""
    return Server(arm, url, await served_model(session, url))
