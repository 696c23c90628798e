"""Engines that read the prompt, behind the shipped router, and questions to them."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from fake_engines import FakeEngine, running_router

from hw_tests.recall.__main__ import main

PATIENCE_S = 20


def remember(prompt: str) -> str:
    """What a good model answers: the code of the last line's thing, and then some."""
    body, question = prompt.rsplit("\n\n", 1)
    found = re.search(re.escape(question) + r" (\d+)\.", body)
    return f" {found[1]}. The code of another is 123456." if found else " unknown, <b>sorry</b>"


def forget_half(prompt: str) -> str:
    """As if the first half of the text had not been handed over."""
    return remember(prompt[len(prompt) // 2 :])


def counted(
    drafts: int = 10,
    accepted: int = 8,
    loads: int = 0,
    verified: int | None = None,
    failed: int = 0,
    leaves_out: str = "",
) -> Callable[[int], str]:
    """What vLLM shows when each request brings so many, in two data-parallel engines."""
    names = {
        "spec_decode_num_drafts": drafts,
        "spec_decode_num_draft_tokens": drafts,
        "spec_decode_num_accepted_tokens": accepted,
        "hybrid_read_loads": loads,
        "hybrid_read_failed_loads": failed,
        "hybrid_read_verified_loads": loads if verified is None else verified,
    }
    return lambda requests: "".join(
        f"# TYPE vllm:{name} counter\n"
        + "".join(
            f'vllm:{name}_total{{engine="{engine}"}} {50 + each * requests}\n'
            for engine, each in enumerate([value, 0])
        )
        for name, value in names.items()
        if name != leaves_out
    )


class Deployment:
    """A prefill and a decode engine behind the router, and a colocated server."""

    def __init__(self) -> None:
        self.prefill, self.decode = FakeEngine(), FakeEngine(remember)
        self.control = FakeEngine(remember)
        self.decode.metrics, self.control.metrics = counted(loads=1), counted()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Deployment]:
        """In a thread, as the runner has a loop of its own."""
        ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

        async def serve() -> None:
            async with AsyncExitStack() as stack:
                for engine in (self.prefill, self.decode, self.control):
                    await stack.enter_async_context(engine.running())
                router = running_router([self.prefill.url], [self.decode.url])
                self.url = await stack.enter_async_context(router)
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        try:
            assert ready.wait(PATIENCE_S)
            yield self
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(PATIENCE_S)
            loop.close()

    def ask(self, out: Path, *more: str) -> tuple[int, dict[str, Any]]:
        """The command's exit code, and its JSON document."""
        urls = ["--url", self.url + "/", "--control-url", self.control.url]
        needles = ["--words", "120", "--needles", "3", "--seeds", "1", "--out", str(out)]
        return main([*urls, *needles, *more]), json.loads(out.read_text())
