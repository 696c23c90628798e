"""300 requests of a real trace or like one, in every engine variant that vLLM accepts."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sim.engine.connectors import get_connector
from sim.kernel import Seed
from sim.model.presets import PRESETS, ModelPreset, get_preset
from sim.run import run
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    TraceWorkload,
    Workload,
    with_settings,
    workload_of,
)
from sim.units import ns_to_seconds
from sim.workload import RequestSpec, Segment
from tests.scenario.known_findings import (
    FINDINGS,
    STATE_COPIED_OVER_READ,
    WINDOW_EDGE,
    Finding,
    Run,
)
from tests.scenario.variants import SETUPS, Setup, windows

TRACES = Path(os.environ.get("FAULTLAB_TRACES", Path(__file__).parents[3] / "shared" / "traces"))
TRACE = TRACES / "mooncake_fast25_conversation_trace.jsonl"
REQUESTS = 300
SHORT = 0.1
"""By which the lengths of most variants are scaled."""
DRAFTERS = {"deepseek-mla": "mtp", "kimi-linear": "dspark"}
"""What MoRIIO accepts beside the model's layers."""
MORIIO = [setup for setup in SETUPS if setup.settings.get("connector") == "moriio"]
HYBRID = [
    Setup(
        f"hybrid-{mode}",
        settings={"connector": "hybrid", "extra_config": f"{{load_mode: {mode}}}"},
    )
    for mode in ("async", "sync")
]
"""The suite's own setups of this connector give up holds after seconds, which a trace outlasts."""
PREFIX_SHARE = 0.4
"""Of the generated requests' prompt tokens."""


@dataclass(frozen=True)
class TraceVariant:
    """One row of the table in docs/soak.md."""

    preset: ModelPreset
    setup: Setup
    method: str | None
    """Of speculation."""
    executor: str
    async_scheduling: str
    policy: str
    tp_size: int = 1
    source: str = "trace"
    """Or ``generated``, of the trace's shape."""

    @property
    def name(self) -> str:
        scheduling = "async" if self.async_scheduling == "true" else "sync"
        kind = "-".join(filter(None, (self.preset.name, self.method, self.setup.name)))
        return f"{kind}-{self.source}-{self.executor}-{scheduling}-{self.policy}"

    @property
    def is_at_own_lengths(self) -> bool:
        """Of the two policies, which differ only when a load fails, one with this connector."""
        if self.setup in HYBRID:
            return self.source == "trace" and self.policy == "fail"
        return self.method is None and self.setup.name == "moriio-read"

    def workload(self) -> Workload:
        scale = 1.0 if self.is_at_own_lengths else SHORT
        if self.source == "generated":
            return GeneratedWorkload(REQUESTS, shared_prefix_share=PREFIX_SHARE, length_scale=scale)
        return TraceWorkload(path=str(TRACE), requests=REQUESTS, length_scale=scale)

    def scenario(self) -> Scenario:
        plain = Scenario(model=self.preset.name, workload=self.workload())
        settings = {
            **self.setup.settings,
            "executor": self.executor,
            "tp_size": str(self.tp_size),
            "async_scheduling": self.async_scheduling,
            "kv_load_failure_policy": self.policy,
        }
        if self.method:
            # What happens while a drafter runs has scenarios of its own.
            settings |= {"speculation.method": self.method, "draft_us": "0"}
        return with_settings(plain, settings)


def trace_variants() -> Iterator[TraceVariant]:
    """All of them."""
    yield from _of_moriio()
    yield from _of_hybrid()


def _of_moriio() -> Iterator[TraceVariant]:
    """The models last so that a stopped run has seen every model."""
    for setup, policy, executor, scheduling, preset in itertools.product(
        MORIIO,
        ("fail", "recompute"),
        ("single-process", "multi-process"),
        ("true", "false"),
        PRESETS.values(),
    ):
        if setup.serves(preset):
            methods = filter(None, [DRAFTERS.get(preset.name)])
            for method in (None, *methods):
                yield TraceVariant(preset, setup, method, executor, scheduling, policy)


def _of_hybrid() -> Iterator[TraceVariant]:
    """On two ranks. What vLLM would answer from a failed load is refused with synchronous loads
    that are to be recomputed, unless scheduling is synchronous, too."""
    for policy, setup, source, preset in itertools.product(
        ("fail", "recompute"), HYBRID, ("trace", "generated"), PRESETS.values()
    ):
        is_refused = setup.name == "hybrid-sync" and policy == "recompute"
        scheduling = "false" if is_refused else "true"
        yield TraceVariant(preset, setup, None, "multi-process", scheduling, policy, 2, source)


def expected_findings(variant: TraceVariant) -> list[Finding]:
    """What each row of the table ends in."""
    if variant.setup.name != "moriio-read":
        return []
    if windows(variant.preset):
        return [WINDOW_EDGE]
    if variant.preset.is_hybrid and variant.async_scheduling == "true":
        return [STATE_COPIED_OVER_READ]
    return []


def row(done: Run) -> str:
    """The run as a row of the table in docs/soak.md."""
    outcome, engine = done.outcome, done.scenario.engine
    wrong = {v.request_id for v in outcome.violations if v.oracle == "same-output"}
    findings = [
        finding.name
        for finding in FINDINGS
        if any(finding.explains(done, violation) for violation in outcome.violations)
    ]
    cells = (
        done.scenario.model,
        engine.speculation.method if engine.speculation else "",
        done.scenario.workload.__struct_config__.tag,
        _mode(done.scenario),
        f"TP {engine.tp_size}",
        engine.executor,
        "asynchronous" if engine.async_scheduling else "synchronous",
        engine.kv_load_failure_policy,
        ", ".join(findings) or ("clean" if outcome.passed else "violation"),
        f"{outcome.requests.get('length', 0)}",
        f"{len(wrong)}",
        f"`{outcome.event_hash[:16]}`",
        f"{outcome.wall_s:.0f} s",
    )
    return f"| {' | '.join(cells)} |"


def _mode(scenario: Scenario) -> str:
    """Of the connector."""
    if "load_mode" in scenario.extra_config:
        return f"hybrid {scenario.extra_config['load_mode']}"
    return "WRITE" if get_connector("moriio").writes(scenario.extra_config) else "READ"


def serve(scenario: Scenario) -> Run:
    return Run(scenario, run(scenario).outcome)


# ------------------------------------------------- the same without the triggers


def without_triggers(scenario: Scenario) -> Scenario:
    """The same requests, with the last token of the prompt left out where its length is one that
    a finding needs: one token past whole blocks, or past the edge of a window."""
    requests = workload_of(scenario, Seed(scenario.seed).stream("workload"))
    preset = get_preset(scenario.model)
    shortened = tuple(_shortened(preset, spec) for spec in requests)
    return msgspec.structs.replace(scenario, workload=InlineWorkload(shortened))


def _shortened(preset: ModelPreset, spec: RequestSpec) -> InlineRequest:
    tokens = spec.prompt_tokens
    triggers = (tokens - 1) % preset.tokens_per_block() == 0 or any(
        (tokens - window + 1) % preset.block_size == 0 for window in windows(preset)
    )
    prompt = list(spec.prompt)
    if triggers and tokens > 1:
        last = prompt.pop()
        if last.n_tokens > 1:
            prompt.append(Segment(last.content_id, last.n_tokens - 1))
    return InlineRequest(
        spec.request_id,
        tuple(prompt),
        spec.max_tokens,
        arrival_s=ns_to_seconds(spec.arrival_ns),
    )
