"""The phases: undisturbed, again with everything cached, and one for each act."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from hw_tests.child import Child
from hw_tests.identity import Identity, identify, refuse_strangers, served_model, unknown
from hw_tests.load.acts import ACTS
from hw_tests.load.checks import (
    Check,
    act_was_met,
    all_served,
    blocks_were_read,
    control_loads_nothing,
    drafts_are_accepted,
    errors_are_told,
    loads_are_verified,
    same_answers,
)
from hw_tests.load.idle import blocks_come_back
from hw_tests.load.send import Limits, Reply, Request, requests_of, send_all
from hw_tests.load.servers import Server
from hw_tests.outcome import NO_DRAFTS, UNVERIFIED, Outcome, wide_gap
from hw_tests.recall.counters import Counters, read_counters, since
from hw_tests.unverified import NOTE


@dataclass(frozen=True)
class Plan:
    """What to send to whom, and what to do meanwhile.

    Args:
        trace: a file of Mooncake's or Azure's form.
        limits: of what is taken of it.
        acts: names of `ACTS`, one phase each.
        away_s: how long an engine is gone.
        answer_s: the longest that any request may take, errors included.
        settle_s: within which all blocks have to be free again; above the longest lease.
        start_s: within which a server has to be ready.
        acceptance_gap: by which fewer drafts may be accepted behind the router.
        exact: whether an answer that is not the control's is a failure.
        is_verified: whether a load of which not every byte was compared is a failure.
        has_drafts: whether the engines speculate.
    """

    trace: Path
    limits: Limits
    acts: Sequence[str]
    away_s: float
    answer_s: float
    settle_s: float
    start_s: float
    acceptance_gap: float
    exact: bool
    is_verified: bool
    has_drafts: bool = True


@dataclass
class Phase:
    """What was done, the replies of either arm, and what was checked."""

    name: str
    router: list[Reply] = field(default_factory=list)
    control: list[Reply] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether any answer is the control's: if none is, they may be of another model."""
        pairs = zip(self.router, self.control, strict=True)
        return any(one.served and other.served and one.text == other.text for one, other in pairs)


@dataclass(frozen=True)
class Servers:
    """All of them; the router is in front of ``prefill`` and ``decode``."""

    prefill: Server
    decode: Server
    control: Server
    router: Server

    def all(self) -> list[Server]:
        return [self.prefill, self.decode, self.control, self.router]

    def engines(self) -> dict[str, Child]:
        """The processes of those that hand over to each other, and whose logs are here."""
        both = (self.prefill, self.decode)
        return {each.name: each.process for each in both if each.process is not None}


class Run:
    """The phases of one run, over one session."""

    def __init__(self, plan: Plan, servers: Servers, session: aiohttp.ClientSession) -> None:
        self._plan, self._servers, self._session = plan, servers, session
        self._model = self._control_model = ""
        self.engines: dict[str, Identity] = {}

    async def start(self) -> None:
        """Start the servers and wait for them.

        Raises:
            ChildFailed: one does not come up.
            ValueError: one names no model, or another one than the others.
        """
        for server in self._servers.all():
            server.start()
        waits = (s.ready(self._session, self._plan.start_s) for s in self._servers.all())
        await asyncio.gather(*waits)
        for server in self._servers.all()[:-1]:
            self.engines[server.name] = await identify(self._session, server.url)
        refuse_strangers(self.engines)
        self._model = await served_model(self._session, self._servers.router.url)
        self._control_model = self.engines["control"].model

    async def phases(self) -> AsyncIterator[Phase]:
        """Each when it is over."""
        plain = requests_of(self._plan.trace, self._plan.limits, seed=0)
        before = await self.counters()
        first = await self._undisturbed("undisturbed", plain, reads=True)
        counted = await self.counters()
        first.checks += [
            drafts_are_accepted(
                counted["router"],
                counted["control"],
                self._plan.acceptance_gap,
                expected=self._plan.has_drafts,
            ),
            control_loads_nothing(since(before["control"], counted["control"])),
        ]
        yield first
        yield await self._undisturbed("again, all of it cached", plain, reads=False)
        for number, name in enumerate(self._plan.acts, 1):
            yield await self._disturbed(name, number)

    async def _undisturbed(self, name: str, requests: Sequence[Request], *, reads: bool) -> Phase:
        phase = Phase(name)
        before = await self._counted()
        phase.router, phase.control = await self._both(requests)
        phase.checks = [
            all_served("the router's requests are served", phase.router),
            all_served("the control's requests are served", phase.control),
            same_answers(phase.router, phase.control, exact=self._plan.exact),
            await self._all_free(),
        ]
        counted = since(before, await self._counted())
        phase.checks.append(blocks_were_read(counted, expected=reads))
        phase.checks += self._verified(counted, expected=reads, which="")
        return phase

    async def _disturbed(self, name: str, number: int) -> Phase:
        """New prompts, so that nothing is cached; the act begins with the middle one."""
        act = ACTS[name]
        struck, other = self._servers.prefill, self._servers.decode
        if act.on == "decode":
            struck, other = other, struck
        phase = Phase(f"{struck.name} engine {name.removeprefix('decode-')} under load")
        requests = requests_of(self._plan.trace, self._plan.limits, seed=2 * number - 1)
        later = requests_of(self._plan.trace, self._plan.limits, seed=2 * number)
        strike_s = requests[len(requests) // 2].at_s

        async def strike() -> tuple[float, float]:
            await asyncio.sleep(strike_s)
            assert struck.process is not None
            act.begin(struck.process)
            gone_s = time.monotonic()
            await asyncio.sleep(0 if act.is_brief else self._plan.away_s)
            act.end(struck.process)
            await struck.ready(self._session, self._plan.start_s)
            return gone_s, time.monotonic()

        before = await self._counted()
        replies, absence = await asyncio.gather(self._both(requests), strike())
        phase.router, phase.control = replies
        told = errors_are_told(phase.router, self._plan.answer_s, expected=act.must_fail)
        phase.checks = [
            act_was_met(phase.router, *absence),
            told,
            all_served("the control's requests are served", phase.control),
            same_answers(phase.router, phase.control, exact=self._plan.exact),
            await self._lives(other),
            await self._all_free(),
        ]
        whole = await self._counted()
        if struck is self._servers.prefill:  # or the decode engine begins to count anew
            phase.checks += self._verified(since(before, whole), expected=False, which="")
        after, _control = await self._both(later)
        phase.checks.append(all_served("later requests are served", after))
        counted = since(whole, await self._counted())
        phase.checks.append(blocks_were_read(counted, expected=True))
        phase.checks += self._verified(counted, expected=True, which="later ")
        return phase

    def _verified(self, counted: Counters | str, *, expected: bool, which: str) -> list[Check]:
        """One check; none where the command line says that it does not matter."""
        if not self._plan.is_verified:
            return []
        return [loads_are_verified(counted, expected=expected, which=which)]

    async def _both(self, requests: Sequence[Request]) -> tuple[list[Reply], list[Reply]]:
        router, control = self._servers.router.url, self._servers.control.url
        found = await asyncio.gather(
            send_all(self._session, router, self._model, requests),
            send_all(self._session, control, self._control_model, requests),
        )
        return found[0], found[1]

    async def _lives(self, other: Server) -> Check:
        is_alive = other.process is None or other.process.is_alive
        healthy = is_alive and await other.healthy(self._session)
        seen = "healthy" if healthy else f"not healthy, process alive: {is_alive}"
        return Check(f"the {other.name} engine lives", healthy, seen)

    async def _all_free(self) -> Check:
        urls = [self._servers.prefill.url, self._servers.decode.url]
        return await blocks_come_back(self._session, urls, self._plan.settle_s)

    async def counters(self) -> dict[str, Counters | str]:
        """What either arm has counted since it started, or why that is not known."""
        control = await self._counted_by(self._servers.control)
        return {"router": await self._counted(), "control": control}

    async def _counted(self) -> Counters | str:
        """By the decode engine, whoever has started it."""
        return await self._counted_by(self._servers.decode)

    async def _counted_by(self, server: Server) -> Counters | str:
        try:
            return await read_counters(self._session, [server.url])
        except ValueError as error:
            return str(error)


def outcome_of(phases: Sequence[Phase], stopped: str | None) -> Outcome:
    """Passed if there is a phase, nothing was red, and all that was looked for could be seen."""
    found = {check.passed for phase in phases for check in phase.checks}
    if stopped is not None or not found or False in found:
        return "FAIL"
    return "INCOMPLETE" if None in found else "pass"


def document(
    plan: Plan,
    phases: Sequence[Phase],
    counters: dict[str, Counters | str],
    stopped: str | None,
    engines: Mapping[str, Identity],
) -> dict[str, Any]:
    """All of it, for JSON; ``stopped`` says why there are no more phases."""
    left_out = {UNVERIFIED: plan.is_verified, NO_DRAFTS: plan.has_drafts}
    caveats = [caveat for caveat, is_looked_at in left_out.items() if not is_looked_at]
    caveats += wide_gap(plan.acceptance_gap)
    return {
        "outcome": outcome_of(phases, stopped),
        "stopped": stopped,
        "caveats": [*caveats, *unknown(engines), *_disagree(phases)],
        "note": NOTE,
        "engines": {name: engine._asdict() for name, engine in engines.items()},
        "plan": {**asdict(plan), "trace": str(plan.trace)},
        "phases": [asdict(phase) for phase in phases],
        "counters": {
            arm: asdict(of) | {"acceptance": of.acceptance} if isinstance(of, Counters) else of
            for arm, of in counters.items()
        },
    }


def _disagree(phases: Sequence[Phase]) -> list[str]:
    names = [phase.name for phase in phases if not phase.agrees]
    return [f"no answer is the control's ({'; '.join(names)})"] if names else []
