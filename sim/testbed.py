"""The test bed of one scenario: its world, engines, router and oracles, and the phases of a run.

A run has a safety phase, in which the workload is served and anything may be broken, and a
quiet phase, in which nothing is broken any more: what is still open has to end, and one more
request has to succeed. Then every oracle gives its last word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sim.acceptance import AcceptanceCount
from sim.deployment import Deployment
from sim.engine.engine import Engine
from sim.engine.owners import HashOwners
from sim.engine.refusals import never_started, refusal
from sim.errors import DeadlockError, StartRefused
from sim.foresight import legs_in_pairs
from sim.kernel import Seed
from sim.model.reference import continuation
from sim.oracles import BlockHistory, Findings, Oracle, OracleContext, RunFacts, watch
from sim.outcome import Outcome, RunResult, verdict_of
from sim.probes import Probe
from sim.router.ongoing import Route
from sim.router.router import Router
from sim.scenario import Scenario, workload_of
from sim.scenario.workloads import EPILOGUE
from sim.transferred import TransferCount
from sim.units import MS, SECOND, US, ns_to_seconds, seconds_to_ns
from sim.workload import RequestSpec, Segment, describe, prompt_token_ids
from sim.world import World

_AT_REST_POLL_NS = 100 * MS
_START_UP_LIMIT_NS = 600 * SECOND
_EPILOGUE_CONTENT = -(1 << 40)  # from here down, content ids that no workload uses


class TestBed:
    """The world of one scenario with its engines, router and oracles."""

    __test__ = False  # not a test class, whatever pytest thinks of the name

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.seed = Seed(scenario.seed)
        self.requests = workload_of(scenario, self.seed.stream("workload"))
        self._specs = {spec.request_id: spec for spec in self.requests}
        overlay = Path(scenario.overlay) if scenario.overlay else None
        self.world = World(
            self.seed,
            owners=HashOwners(self._prompts),
            perturb=scenario.perturb,
            skip_empty_steps=scenario.skip_empty_steps,
            overlay=overlay,
            fabric=scenario.fabric_profile,
            network_latency_ns=scenario.network_latency_us * US,
            check=scenario.check,
        )
        self.kernel = self.world.kernel
        self.producers, self.consumers = Deployment(scenario, self.world, self.requests).engines()
        self.engines: list[Engine] = [*self.producers, *self.consumers]
        self.router = Router(
            self.world,
            self.producers,
            self.consumers,
            self.requests,
            scenario.router,
            in_pairs=legs_in_pairs(scenario),
        )
        self.findings = Findings(self.kernel)
        self.blocks = BlockHistory(self.kernel, self.world.memory_map.locate)
        self.oracles: list[Oracle] = watch(self.world.probes, self._oracle_context())
        self.faults_taken = False
        self.safety_phase_over = False
        self._healers: list[Callable[[], None]] = []
        self._never_sent: list[str] = []
        self._steps = StepCount()
        self.world.probes.add(self._steps)
        speculation = scenario.speculation
        drafts = speculation.num_speculative_tokens if speculation else 0
        self.acceptance = AcceptanceCount(drafts, EPILOGUE)
        self.world.probes.add(self.acceptance)
        self.transfers = TransferCount(self.world.memory_map.locate, self.blocks, EPILOGUE)
        self.world.probes.add(self.transfers)

    # ------------------------------------------------------------- the phases

    def serve(self) -> None:
        """Start the engines, serve the workload, then let everything come to rest."""
        self._start_engines()
        self.world.probes.workload_began()
        self.router.start()
        goes_on = self._run_workload()
        self.safety_phase_over = True
        for heal in self._healers:
            heal()
        if goes_on:
            self._quiet_phase()
        if not self.router.done.triggered:
            self.kernel.record("still-waiting", waiting=self.kernel.describe_waiters())
        for oracle in self.oracles:
            oracle.finish(RunFacts(engines=self.engines))

    def take_faults(self) -> tuple[dict[str, Any], ...]:
        """The scenario's faults, for the caller to inject."""
        self.faults_taken = True
        return self.scenario.faults

    def engine(self, name: str) -> Engine:
        """The engine of that name; KeyError when there is none."""
        return {engine.name: engine for engine in self.engines}[name]

    def on_safety_phase_end(self, heal: Callable[[], None]) -> None:
        """Call ``heal`` before the quiet phase begins, and also when there is none."""
        self._healers.append(heal)

    def _run_workload(self) -> bool:
        """Whether what is open may still end in a quiet phase: not when all requests were sent
        and some had too little time, or wait for what cannot happen any more, unless something
        is to be healed before."""
        limit_ns = seconds_to_ns(self.scenario.max_virtual_s)
        if self._run_until_done(limit_ns):
            return True
        self._never_sent = self.router.stop_sending()
        if self._never_sent:
            self.kernel.record("cut-short", never_sent=len(self._never_sent))
        return bool(self._never_sent or self._healers)

    def _start_engines(self) -> None:
        for engine in self.engines:
            engine.start()
        for engine in self.engines:
            if not self._run_until(engine.ready, _START_UP_LIMIT_NS) or not engine.alive:
                raise self._refused(engine)
        self.world.sources.require_overlay_in_use()

    def _refused(self, engine: Engine) -> StartRefused:
        for failed, error in self.world.engine_errors:
            return refusal(failed, error)
        return never_started(engine)

    def _quiet_phase(self) -> None:
        quiet_ns = seconds_to_ns(self.scenario.quiet_phase_s)
        if not quiet_ns:
            return
        self._restart_crashed()
        self.world.probes.quiet_phase_began()
        for number, route in enumerate(self._ways()):
            self.router.submit(self._epilogue(number), route)
        end_ns = self.kernel.now_ns + quiet_ns
        if not self._run_until_done(end_ns):
            return
        while self.kernel.now_ns < end_ns and not self.at_rest():
            self._run_until(None, min(end_ns, self.kernel.now_ns + _AT_REST_POLL_NS))

    def _restart_crashed(self) -> None:
        """Engines that died by themselves stay dead, but for a step that had to be ended; those
        that were killed come back."""
        for engine in self.engines:
            if engine.comes_back and not engine.alive:
                engine.restart()
        for engine in self.engines:
            self._run_until(engine.ready, self.kernel.now_ns + _START_UP_LIMIT_NS)

    def _run_until_done(self, limit_ns: int) -> bool:
        return self._run_until(self.router.done, limit_ns)

    def _run_until(self, event: Any, limit_ns: int) -> bool:
        """False when the limit came first, or when nothing is left that could happen: if a
        request is open then, somebody waits for ever, which is for the oracles to say."""
        try:
            return self.kernel.run(until=event, until_ns=limit_ns)
        except DeadlockError:
            self.kernel.record("nothing-left-to-happen", waiting=self.kernel.describe_waiters())
            return False

    def at_rest(self) -> bool:
        """Whether every living engine holds no request and no block for one, and nothing that
        was given up on may still land."""
        return not self.world.fabric.may_land() and all(
            _is_idle(engine) for engine in self.engines if engine.alive
        )

    def _ways(self) -> list[Route | None]:
        """Every way that a request can take through living engines; None, which fails, if there
        is none."""
        producers: Sequence[Engine | None] = self.producers or [None]
        pairs = product(producers, self.consumers)
        ways = [
            Route(producer, consumer)
            for producer, consumer in pairs
            if consumer.alive and (producer is None or producer.alive)
        ]
        return [*ways] or [None]

    def _epilogue(self, number: int) -> RequestSpec:
        """A request that has to succeed once nothing is broken any more."""
        name = f"{EPILOGUE}-{number}" if number else EPILOGUE
        prompt = (Segment(_EPILOGUE_CONTENT - number, 100),)
        return self._specs.setdefault(name, RequestSpec(name, 0, prompt, 4))

    # ------------------------------------------------------------ the outcome

    def result(self, wall_s: float) -> RunResult:
        """What came of it; to be called before the world is left."""
        results = self.router.results
        served = [results[s.request_id] for s in self.requests if s.request_id in results]
        outcomes = Counter(result.outcome for result in served)
        never_sent = len(self._never_sent)
        unfinished = len(self.requests) - len(served) - never_sent
        counts = dict(sorted(outcomes.items()))
        notes = {k: v for oracle in self.oracles for k, v in oracle.counts().items()}
        asked = sorted(set().union(*(e.connector.asked for e in self.engines if e.connector)))
        log = self.kernel.log
        outcome = Outcome(
            verdict=verdict_of(self.findings.violations, never_sent),
            violations=self.findings.violations,
            requests={
                "total": len(self.requests),
                **counts,
                "unfinished": unfinished,
                **({"never-sent": never_sent} if never_sent else {}),
            },
            workload=describe(self.requests),
            virtual_s=ns_to_seconds(self.kernel.now_ns),
            wall_s=wall_s,
            guest_s=self.kernel.guest_wall_s,
            engine_steps=self._steps.count,
            transfers=self.transfers.by_request(),
            speculation=self.acceptance.total() if self.scenario.speculation else None,
            events=log.switches + len(log.records),
            event_hash=log.digest(),
            seed=self.scenario.seed,
            scenario=msgspec.to_builtins(self.scenario),
            notes=notes,
            settings_asked_for=asked,
            settings_not_asked_for=sorted({*self.scenario.extra_config}.difference(asked)),
        )
        return RunResult(outcome, log, self.world.sources.digest())

    # ------------------------------------------------------------ construction

    def _oracle_context(self) -> OracleContext:
        return OracleContext(
            kernel=self.kernel,
            findings=self.findings,
            blocks=self.blocks,
            expected_tokens=self.answer_of,
            requested_tokens=self._requested_tokens,
            parameters={"bounded-waiting": self._waiting_limits()},
        )

    def _waiting_limits(self) -> dict[str, float]:
        """The transfer time-out that the connector was given, under its usual name; what is no
        number the connector will refuse."""
        given = self.scenario.extra_config.get("transfer_timeout")
        with suppress(TypeError, ValueError):
            return {} if given is None else {"transfer_timeout_s": float(given)}
        return {}

    def _requested_tokens(self, request_id: str) -> int:
        """As many as its client asked for, or up to the first of its stop tokens."""
        most, stops = self._specs[request_id].max_tokens, self.router.stop_tokens.get(request_id)
        tokens = self.answer_of(request_id, most) if stops else ()
        return next((n for n, token in enumerate(tokens, 1) if token in (stops or ())), most)

    def answer_of(self, request_id: str, count: int) -> Sequence[int]:
        """The first ``count`` tokens of the right answer, which stop tokens do not cut."""
        prompt = prompt_token_ids(self._specs[request_id], vocab_size=self.world.vocab_size)
        return continuation(prompt, count, self.world.vocab_size)

    def _prompts(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        for name, spec in self._specs.items():
            yield name, prompt_token_ids(spec, vocab_size=self.world.vocab_size)


class StepCount(Probe):
    """How many engine steps a run took."""

    def __init__(self) -> None:
        self.count = 0

    def step_done(self, step: Any) -> None:
        self.count += 1

    def steps_skipped(self, count: int, last: Any) -> None:
        self.count += count


def _is_idle(engine: Engine) -> bool:
    if engine.loop is None:
        return False
    scheduler = engine.loop.scheduler
    free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
    return not scheduler.requests and free == engine.num_blocks - 1
