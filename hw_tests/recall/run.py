"""The run itself: every text, every question, both servers, twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass

import aiohttp

from hw_tests.identity import identify, refuse_strangers
from hw_tests.recall.ask import Hit, find_server
from hw_tests.recall.counters import Counters, engines_behind, read_counters, since
from hw_tests.recall.report import ARMS, Report
from hw_tests.recall.texts import Text, make_text
from hw_tests.same_server import same_server


@dataclass(frozen=True)
class Plan:
    """What to ask whom.

    Args:
        url, control_url: of the router and of a colocated server, without ``/v1``.
        words: lengths of texts.
        needles: codes in each text, all of which are asked for.
        seeds: texts of each length.
        max_tokens: of an answer; more of them say more about drafts.
        timeout_s: for one answer.
    """

    url: str
    control_url: str
    words: Sequence[int]
    needles: int = 10
    seeds: Sequence[int] = (0, 1, 2)
    max_tokens: int = 64
    timeout_s: float = 1800.0


async def run(plan: Plan) -> AsyncIterator[Report]:
    """The report so far, after each text.

    Raises:
        ValueError: a text cannot be made, a server is not there, or the control is no control.
    """
    texts = [make_text(words, seed, plan.needles) for words in plan.words for seed in plan.seeds]
    timeout = aiohttp.ClientTimeout(total=plan.timeout_s)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        servers = {
            arm: await find_server(session, arm, url)
            for arm, url in zip(ARMS, (plan.url, plan.control_url), strict=True)
        }
        engines = await engines_behind(session, plan.url)
        behind = [plan.url, *engines["decode"]]
        if any(same_server(plan.control_url, url) for url in behind):
            raise ValueError(f"--control-url {plan.control_url} answers from what was handed over; "
                             "name a colocated server, such as the prefill engine")  # fmt: skip
        known = {f"{kind} {url}": url for kind, urls in engines.items() for url in urls}
        known["control"] = plan.control_url
        identities = {name: await identify(session, url) for name, url in known.items()}
        refuse_strangers(identities)
        decode, control = engines["decode"], [plan.control_url]
        counting = {arm: await _Counting.begin(session, each)
                    for arm, each in zip(ARMS, (decode, control), strict=True)}  # fmt: skip
        report = Report(asdict(plan), servers, [], {}, texts=len(texts), engines=identities)
        for text in texts:
            before = await counting["router"].so_far(session)
            await _ask_all(session, report, text, plan.max_tokens)
            report.counters = {arm: await c.so_far(session) for arm, c in counting.items()}
            report.read[text.words, text.seed] = since(before, report.counters["router"])
            yield report


async def _ask_all(
    session: aiohttp.ClientSession, report: Report, text: Text, max_tokens: int
) -> None:
    for index, needle in enumerate(text.needles):
        hits: tuple[Hit, Hit] = ("part" if index else "none", "whole")
        for hit in hits:
            for server in report.servers.values():  # in turn: they may share an engine
                report.answers.append(await server.ask(session, text, needle, hit, max_tokens))


@dataclass(frozen=True)
class _Counting:
    engines: Sequence[str]
    before: Counters | str

    @classmethod
    async def begin(cls, session: aiohttp.ClientSession, engines: Sequence[str]) -> _Counting:
        return cls(engines, await _counters(session, engines))

    async def so_far(self, session: aiohttp.ClientSession) -> Counters | str:
        return since(self.before, await _counters(session, self.engines))


async def _counters(session: aiohttp.ClientSession, engines: Sequence[str]) -> Counters | str:
    """Or why they are not known: answers count without them."""
    try:
        return await read_counters(session, engines)
    except ValueError as error:
        return str(error)
