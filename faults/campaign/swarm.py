"""Swarm testing: each seed enables a few kinds of fault, with weights of its own.

A run in which everything may happen is like every other; one in which little may happen goes
deeper. So what is left out is drawn first, and then how often what is left happens. Kinds are
drawn from what they are made of (types, possible phases), never by name.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from faults.cells import possible_phases
from faults.fault import Fault, LastingFault, parameters
from faults.kinds import KINDS
from faults.schedule import encode
from sim.engine.connectors import ConnectorKind, get_connector
from sim.engine.options import EngineOptions
from sim.kernel import Seed
from sim.model.presets import PRESETS, get_preset
from sim.model.speculation import Speculation
from sim.scenario import Scenario, Topology, UniformWorkload, with_settings

DEFAULT_MODELS = tuple(sorted(PRESETS))
_DURATIONS_S = (0.2, 1.0, 5.0)
_MOST_KINDS, _MOST_FAULTS = 4, 5
_UNNOTICED_SHARE = 0.5  # of the seeds that verify reads
_REFUSED_SHARE = 0.2


class SwarmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all seeds of a campaign have in common; ``settings`` are those of ``--set``."""

    connector: str = "moriio"
    models: tuple[str, ...] = DEFAULT_MODELS
    settings: dict[str, str] = {}
    quiet_phase_s: float = 90.0
    verified_share: float = 0.25
    """Of seeds, those that verify reads, where the connector can."""
    apart_share: float = 0.05
    """Of seeds, those in which engines disagree, where the connector has an answer to it."""
    sync_share: float = 0.15
    """Of seeds, those in which a step waits for its loads, where the connector can do both."""
    tuned_share: float = 0.15
    """Of seeds, those with other settings of the connector than by default, where it has any."""
    widest_share: float = 0.1
    """Of seeds, those with two producers and two consumers."""
    always: tuple[str, ...] = ()
    """Kinds of fault of which every seed has one, besides those that it draws."""
    beside: str | None = None
    """Another connector that runs the same seeds: what only one of them can do is not drawn."""

    def each(self, ability: Callable[[ConnectorKind], object]) -> bool:
        """Whether all connectors that run these seeds have an ability."""
        return all(ability(get_connector(name)) for name in self._connectors)

    def choices(self) -> dict[str, tuple[int, ...]]:
        """Settings to draw that all these connectors have, with values other than the default."""
        first, *others = (get_connector(name).choices for name in self._connectors)
        return {key: v for key, v in first.items() if all(o.get(key) == v for o in others)}

    @property
    def _connectors(self) -> tuple[str, ...]:
        return (self.connector,) if self.beside is None else (self.connector, self.beside)


def scenario_of(seed: int, options: SwarmOptions) -> Scenario:
    """The scenario of a seed: the same one always, for the same options.

    Raises:
        UsageError: a setting that is not accepted.
    """
    rng = Seed(seed).stream("swarm")
    model = rng.choice(options.models)
    scenario = Scenario(
        seed=seed,
        connector=options.connector,
        extra_config=_extra_config(seed, options),
        model=model,
        topology=_topology(rng, seed, options.widest_share),
        engine=_engine(rng, model),
        workload=_workload(rng),
        perturb=rng.random() < 0.5,
        quiet_phase_s=options.quiet_phase_s,
        max_virtual_s=300.0,
    )
    scenario = with_settings(scenario, options.settings)
    scenario = _tuned(scenario, options)
    scenario = _verifying(_synchronous(scenario, options), options)
    scenario = _with_usable_policy(scenario)
    faults = [
        *draw_faults(rng, _span_s(scenario)),
        *_faults_for_some(scenario, options),
        *_faults_that_set_apart(scenario, options),
        *_faults_for_all(scenario, options.always),
    ]
    return msgspec.structs.replace(scenario, faults=encode(faults))


def _topology(rng: random.Random, seed: int, widest_share: float) -> Topology:
    """One pair of engines, mostly; the widest is drawn by a stream of its own."""
    size = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
    widest = Seed(seed).stream("swarm/topology").random() < widest_share
    return Topology(*((2, 2) if widest else size))


def draw_faults(rng: random.Random, span_s: float = 1.0) -> list[Fault]:
    """Some faults of a few kinds that every connector has to survive, within the first ``span_s``
    of the workload."""
    eligible = [kind for kind in KINDS.values() if _is_for_all(kind)]
    enabled = rng.sample(eligible, rng.randint(1, _MOST_KINDS))
    weights = [rng.random() for _ in enabled]
    count = rng.randint(1, _MOST_FAULTS)
    return [_draw(kind, rng, span_s) for kind in rng.choices(enabled, weights, k=count)]


def _is_for_all(kind: type[Fault]) -> bool:
    return not (kind.before_start or kind.breaks_contract or kind.needs_fail_closed)


def _tuned(scenario: Scenario, options: SwarmOptions) -> Scenario:
    """The scenario with other settings of the connector, in some seeds; what is set stays."""
    rng = Seed(scenario.seed).stream("swarm/tuning")
    if rng.random() >= options.tuned_share:
        return scenario
    choices = options.choices().items()
    drawn = {key: rng.choice(values) for key, values in choices if rng.random() < 0.5}
    return msgspec.structs.replace(scenario, extra_config={**drawn, **scenario.extra_config})


def _verifying(scenario: Scenario, options: SwarmOptions) -> Scenario:
    """The scenario with reads verified, in some seeds in which nobody has decided about it."""
    rng = Seed(scenario.seed).stream("swarm/verify_reads")
    settings = scenario.extra_config
    can = options.each(lambda kind: kind.verifies) and "verify_reads" not in settings
    if not can or rng.random() >= options.verified_share:
        return scenario
    return msgspec.structs.replace(scenario, extra_config={**settings, "verify_reads": "all"})


def _synchronous(scenario: Scenario, options: SwarmOptions) -> Scenario:
    """The scenario with synchronous loads, in some seeds in which nobody has decided about it."""
    rng = Seed(scenario.seed).stream("swarm/load_mode")
    settings = scenario.extra_config
    can = options.each(lambda kind: kind.step_failure) and "load_mode" not in settings
    if not can or rng.random() >= options.sync_share:
        return scenario
    return msgspec.structs.replace(scenario, extra_config={**settings, "load_mode": "sync"})


def _faults_for_some(scenario: Scenario, options: SwarmOptions) -> list[Fault]:
    """In some seeds, a fault to which this connector has an answer and not every one has: bytes
    that change unnoticed, where it looks at them, and what has to be refused, where it does.

    Chance of their own leaves other draws as they are.
    """
    rng, span_s = Seed(scenario.seed).stream("swarm/faults-for-some"), _span_s(scenario)
    drawn: list[Fault] = []
    if _verifies_content(scenario) and rng.random() < _UNNOTICED_SHARE:
        kinds = [kind for kind in KINDS.values() if kind.breaks_contract]
        drawn.append(_draw(rng.choice(kinds), rng, span_s))
    if options.each(lambda kind: kind.fails_closed) and rng.random() < _REFUSED_SHARE:
        kinds = [kind for kind in KINDS.values() if kind.needs_fail_closed]
        drawn.append(_draw(rng.choice(kinds), rng, span_s))
    return drawn


def _faults_that_set_apart(scenario: Scenario, options: SwarmOptions) -> list[Fault]:
    """In some seeds, one engine that is unlike the others in one thing."""
    rng = Seed(scenario.seed).stream("swarm/apart")
    can = options.each(lambda kind: kind.fails_closed)
    if not can or rng.random() >= options.apart_share:
        return []
    kind = rng.choice([kind for kind in KINDS.values() if kind.sets_apart])
    engines = [f"p{n}" for n in range(scenario.topology.producers)]
    engines += [f"d{n}" for n in range(scenario.topology.consumers)]
    target = {"node": rng.choice(engines)}
    return [msgspec.convert({**rng.choice(kind.variants(scenario)), "target": target}, kind)]


def _faults_for_all(scenario: Scenario, kinds: Sequence[str]) -> list[Fault]:
    """One of each of ``kinds``, by chance of their own, as above."""
    rng, span_s = Seed(scenario.seed).stream("swarm/always"), _span_s(scenario)
    return [_draw(KINDS[kind], rng, span_s) for kind in kinds]


def _draw(kind: type[Fault], rng: random.Random, span_s: float) -> Fault:
    document: dict[str, Any] = {"when": _draw_trigger(kind, rng, span_s)}
    if "node" in kind.takes and rng.random() < 0.3:
        document["target"] = {"node": rng.choice(("p0", "d0"))}
    for field in _fields(kind):
        drawn = _draw_value(field.type, rng)
        if drawn is not None:
            document[field.encode_name] = drawn
    if issubclass(kind, LastingFault):
        document["for_s"] = rng.choice((*_DURATIONS_S, kind.longest_s))
    return msgspec.convert(document, kind)


def _draw_trigger(kind: type[Fault], rng: random.Random, span_s: float) -> dict[str, Any]:
    chance, phases = rng.random(), possible_phases(kind.kind())
    if phases and chance < 0.6:
        return {"phase": rng.choice(phases), "nth": rng.randint(1, 4)}
    if phases and chance < 0.7 and issubclass(kind, LastingFault):
        return {"during": rng.choice(phases)}
    return {"at_s": round(rng.uniform(0.0, span_s), 6)}


@cache
def _fields(kind: type[Fault]) -> list[inspect.Field]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    own = parameters(kind)
    return [field for field in info.fields if field.name in own and field.name != "for_s"]


def _draw_value(node: inspect.Type, rng: random.Random) -> Any:
    """One of the values of a choice; None for what has no end, which keeps its default."""
    match node:
        case inspect.LiteralType(values=values):
            return rng.choice(sorted(values, key=str))
        case inspect.BoolType():
            return rng.random() < 0.5
    return None


def _extra_config(seed: int, options: SwarmOptions) -> dict[str, str]:
    """Connectors that can do both write in some runs, and read in most. A stream of its own leaves
    all else the same for those that cannot."""
    writes = Seed(seed).stream("swarm/read_mode").random() < 0.25
    can = options.each(lambda kind: "read_mode" in kind.extra_config)
    return {"read_mode": "false"} if can and writes else {}


def _engine(rng: random.Random, model: str) -> EngineOptions:
    tp_size = rng.choice((1, 1, 1, 2))
    several = tp_size > 1 or rng.random() < 0.3
    return EngineOptions(
        tp_size=tp_size,
        executor="multi-process" if several else "single-process",
        async_scheduling=rng.random() < 0.7,
        enable_prefix_caching=rng.random() < 0.7,
        kv_load_failure_policy=rng.choice(("fail", "recompute")),
        max_num_batched_tokens=rng.choice((8_192, 8_192, 8_192, 256)),
        speculation=_speculation(rng, model),
    )


def _speculation(rng: random.Random, model: str) -> Speculation | None:
    """Drafts in some runs of models that have a drafter."""
    methods = sorted(get_preset(model).drafters)
    if not methods or rng.random() < 0.7:
        return None
    drawn = {"method": rng.choice(methods), "num_speculative_tokens": rng.randint(1, 3)}
    return msgspec.convert(drawn, Speculation)


def _with_usable_policy(scenario: Scenario) -> Scenario:
    """Failed loads fail their requests where they cannot be computed again.

    What vLLM counts after it took back a pass with drafts, and the next is under way, is not
    simulated (sim/DIVERGENCE.md); of synchronous loads it would make a token of the failed one.
    """
    engine = scenario.engine
    is_synchronous = scenario.extra_config.get("load_mode") == "sync"
    if not engine.async_scheduling or not (engine.speculation or is_synchronous):
        return scenario
    engine = msgspec.structs.replace(engine, kv_load_failure_policy="fail")
    return msgspec.structs.replace(scenario, engine=engine)


def _workload(rng: random.Random) -> UniformWorkload:
    """Lengths from one token to several of the longest blocks, and hits of any length."""
    longest = rng.choice((40, 200, 1_300, 1_300))
    return UniformWorkload(
        requests=rng.randint(3, 10),
        prompt_tokens=(1, longest),
        output_tokens=(rng.choice((1, 2)), rng.choice((4, 16))),
        interval_ms=rng.choice((0.0, 20.0, 100.0)),
        repeats=rng.choice((0.0, 0.5)),
    )


def _span_s(scenario: Scenario) -> float:
    """About as long as the requests take when nothing goes wrong."""
    workload = scenario.workload
    if not isinstance(workload, UniformWorkload):
        return 1.0
    return 0.1 + workload.requests * (workload.interval_ms / 1_000 + 0.01)


def _verifies_content(scenario: Scenario) -> bool:
    return scenario.extra_config.get("verify_reads") == "all"
