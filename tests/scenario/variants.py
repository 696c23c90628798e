"""What every model is run through: setups times variants, as declared tables.

A new preset in sim/model/presets is picked up by itself. A new connector or mode is a line in
SETUPS, a new engine option or workload one in VARIANTS; what is known to go wrong is in
known_findings.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from sim.model.presets import PRESETS, ModelPreset
from sim.router.options import COLOCATED_PHASES, PHASES
from sim.scenario import (
    GeneratedWorkload,
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    Workload,
    with_settings,
)
from sim.workload import Segment

Settings = Mapping[str, str]
"""As for ``faultlab run --set``."""


@dataclass(frozen=True)
class Setup:
    """Who serves: one colocated engine, or a P/D pair with a connector."""

    name: str
    colocated: bool = False
    settings: Settings = field(default_factory=dict)
    serves: Callable[[ModelPreset], bool] = lambda preset: True
    """Whether it serves the model; engines with the others refuse to start."""
    brief: tuple[str, ...] | None = None
    """Variants that are part of ``make test``; the others are left to the soak runs. None: all."""
    only: tuple[str, ...] | None = None
    """Variants that the setup is run with. None: all."""

    def runs(self, variant: Variant) -> bool:
        return self.only is None or variant.name in self.only


@dataclass(frozen=True)
class Variant:
    """What is served and how."""

    name: str
    workload: Callable[[ModelPreset], Workload]
    settings: Settings = field(default_factory=dict)
    num_blocks: Callable[[ModelPreset], int] | None = None
    """Of each rank's cache, if the default, which is never short, is not wanted."""
    soak: tuple[str, ...] = ()
    """Setups with which it takes too long for ``make test``."""


@dataclass(frozen=True)
class Case:
    """One run of the suite."""

    preset: ModelPreset
    setup: Setup
    variant: Variant

    @property
    def name(self) -> str:
        return f"{self.preset.name}-{self.setup.name}-{self.variant.name}"

    @property
    def is_long(self) -> bool:
        briefs = (self.setup.brief, BRIEF_MODELS.get(self.preset.name))
        is_left_out = any(brief is not None and self.variant.name not in brief for brief in briefs)
        return is_left_out or self.setup.name in self.variant.soak

    def scenario(self) -> Scenario:
        plain = Scenario(model=self.preset.name, workload=self.variant.workload(self.preset))
        settings = {**self.setup.settings, **self.variant.settings}
        if self.variant.num_blocks is not None:
            settings["num_blocks"] = str(self.variant.num_blocks(self.preset))
        scenario = with_settings(plain, settings)
        return _colocated(scenario) if self.setup.colocated else scenario


def _colocated(scenario: Scenario) -> Scenario:
    """The same on one engine, without what happens only between two."""
    aborts = tuple(a for a in scenario.router.aborts if a.on_phase in COLOCATED_PHASES)
    return msgspec.structs.replace(
        scenario,
        topology=Topology(colocated=True),
        router=msgspec.structs.replace(scenario.router, aborts=aborts, holds=()),
    )


# ----------------------------------------------------------------- workloads


def shared(preset: ModelPreset) -> Workload:
    """Prompts that partly begin alike, at a busy pace."""
    return GeneratedWorkload(requests=6, length_scale=0.05, rate_rps=40, shared_prefix_share=0.6)


def alone(preset: ModelPreset) -> Workload:
    """Prompts that share nothing; for what happens to single requests, req-0 to req-5."""
    return UniformWorkload(
        requests=6, prompt_tokens=(200, 300), output_tokens=(20, 30), interval_ms=30.0
    )


def together(preset: ModelPreset) -> Workload:
    """Prompts of two blocks and more, all at once, with outputs that go on into the next block."""
    block = preset.tokens_per_block()
    low, high = max(200, 2 * block), max(300, 3 * block)
    return UniformWorkload(
        requests=6, prompt_tokens=(low, high), output_tokens=(60, 80), interval_ms=5.0
    )


def edges(preset: ModelPreset) -> Workload:
    """Prompts that end around the ends of blocks and windows, down to one token; each is sent
    again when the first has been served."""
    marks = {n * preset.tokens_per_block() for n in (1, 2, 4)}
    marks |= {window + n for window in windows(preset) for n in (0, preset.block_size)}
    lengths = sorted({1, 2} | {mark + n for mark in marks for n in (-1, 0, 1, 2)})
    twice = [(length, again) for length in lengths for again in (0, 1)]
    return InlineWorkload(
        tuple(
            InlineRequest(
                f"{length}-tokens-{again}", (Segment(length, length),), 3, arrival_s=0.15 * n
            )
            for n, (length, again) in enumerate(twice)
        )
    )


def while_decoding(preset: ModelPreset) -> Workload:
    """Prompts of whole blocks and one token, which arrive while another request is decoded."""
    block = preset.tokens_per_block()
    lengths = [200, *(n * block + 1 for n in (1, 2, 3))]
    return InlineWorkload(
        tuple(
            InlineRequest(f"req-{n}", (Segment(n, length),), 60, arrival_s=0.1 * n)
            for n, length in enumerate(lengths)
        )
    )


def conversations(preset: ModelPreset) -> Workload:
    """Turns that go on from what was said, and others that branch off half way, so that prefix
    caches hold all, some or only one kind of layer of what is asked for."""
    block = preset.tokens_per_block()
    turns: list[list[tuple[int, int]]] = [
        [(1, 2 * block + 7)],
        [(1, 2 * block + 7), (2, block)],
        [(1, 2 * block + 7), (2, block), (3, 5)],
        [(1, block + 3), (4, 2 * block)],
        [(1, 2 * block + 7), (5, 9)],
        [(1, 2 * block), (6, 1)],
        [(1, block + 3), (4, 2 * block), (7, 2 * block)],
    ]
    return InlineWorkload(
        tuple(
            InlineRequest(
                f"turn-{n}", tuple(Segment(*part) for part in turn), 12, arrival_s=0.12 * n
            )
            for n, turn in enumerate(turns)
        )
    )


def windows(preset: ModelPreset) -> set[int]:
    """Sizes of the sliding windows of a model, in tokens."""
    specs = preset.layer_specs(1, "reduced").values()
    sizes = {getattr(spec, "sliding_window", None) for spec in specs}
    return {size for size in sizes if size is not None}


def has_rings(preset: ModelPreset) -> bool:
    """Rings are a second attention group beside states."""
    return preset.sizes("reduced").indexer is not None


def scarce(preset: ModelPreset) -> int:
    """Blocks for hardly more than two requests of `together`."""
    block = preset.tokens_per_block()
    longest = max(300, 3 * block) + 80
    return preset.num_groups * int(2.2 * longest / block) + 1


# -------------------------------------------------------------------- tables


def _hybrid(load_mode: str) -> Settings:
    """Holds are short, so that abandoned hand-offs end within the quiet phase, and what was held
    for too long is computed again."""
    return {
        "connector": "hybrid",
        "extra_config": f"{{load_mode: {load_mode}, defer_timeout: 3}}",
        "kv_load_failure_policy": "recompute" if load_mode == "async" else "fail",
    }


# Where blocks and states go, which depends on when a load takes place.
_POSITIONS = ("scarce-blocks", "edges", "whole-blocks-while-decoding", "conversations")
_ASYNC_BRIEF = (
    *_POSITIONS,
    "single-process-asynchronous",
    "multi-process-asynchronous",
    "two-ranks",
    "perturbed",
    "aborts",
    "retried-with-the-same-id",
    "held",
)

# Models that differ from another one in a figure only.
BRIEF_MODELS = {"glm-kpool16-nospec": _POSITIONS}
# What disturbs nobody; the findings of WRITE mode have scenarios of their own.
_UNDISTURBED = (
    *_POSITIONS,
    "single-process-asynchronous",
    "single-process-synchronous",
    "multi-process-asynchronous",
    "multi-process-synchronous",
    "no-prefix-caching",
    "small-chunks",
    "two-ranks",
    "recompute",
    "perturbed",
)

SETUPS = (
    Setup("colocated", colocated=True),
    Setup("reference", settings={"connector": "reference"}),
    Setup("moriio-read", settings={"connector": "moriio"}, serves=lambda p: not has_rings(p)),
    Setup(
        "moriio-write",
        settings={"connector": "moriio", "extra_config": "{read_mode: 'false'}"},
        serves=lambda p: not has_rings(p) and not windows(p),
        brief=(
            *_POSITIONS,
            "single-process-asynchronous",
            "multi-process-asynchronous",
            "two-ranks",
        ),
        only=_UNDISTURBED,
    ),
    Setup("hybrid-async", settings=_hybrid("async"), brief=_ASYNC_BRIEF),
    # A load that fails ends the engine in this mode, so only what does not make one fail is run.
    Setup("hybrid-sync", settings=_hybrid("sync"), only=_POSITIONS),
)


def _aborts(phases: Sequence[str]) -> Settings:
    listed = (f"{{request: req-{n}, on_phase: {phase}}}" for n, phase in enumerate(phases))
    return {"router.aborts": f"[{', '.join(listed)}]", "quiet_phase_s": "5"}


def _retry(**how: str) -> Settings:
    after = {"after_s": "0.1", **how}
    keys = ", ".join(f"{key}: {value}" for key, value in after.items())
    return {"router.retries": f"[{{request: req-1, {keys}}}, {{request: req-3, {keys}}}]"}


def _engines() -> Iterator[Variant]:
    """Executors times scheduling; the defaults are the first."""
    for executor, scheduling in itertools.product(
        ("single-process", "multi-process"), ("asynchronous", "synchronous")
    ):
        is_async = "true" if scheduling == "asynchronous" else "false"
        settings = {"executor": executor, "async_scheduling": is_async}
        yield Variant(f"{executor}-{scheduling}", shared, settings)


VARIANTS = (
    *_engines(),
    Variant("no-prefix-caching", shared, {"enable_prefix_caching": "false"}),
    Variant("small-chunks", shared, {"max_num_batched_tokens": "256"}),
    # vLLM splits prompts at the blocks of recurrent states, unless it caches no prefixes.
    Variant(
        "whole-prefills",
        shared,
        {"enable_chunked_prefill": "false", "enable_prefix_caching": "false"},
    ),
    Variant("two-ranks", shared, {"tp_size": "2", "executor": "multi-process"}),
    Variant("two-by-two", shared, {"topology.producers": "2", "topology.consumers": "2"}),
    Variant(
        "four-by-four",
        shared,
        {"topology.producers": "4", "topology.consumers": "4"},
        soak=("colocated", "reference"),
    ),
    Variant("recompute", shared, {"kv_load_failure_policy": "recompute"}),
    Variant("perturbed", shared, {"perturb": "true"}),
    Variant("scarce-blocks", together, num_blocks=scarce),
    Variant("edges", edges),
    Variant("whole-blocks-while-decoding", while_decoding),
    Variant("conversations", conversations),
    Variant("aborts", alone, _aborts(PHASES)),
    Variant("retried-with-the-same-id", alone, _retry()),
    Variant("retried-with-a-new-id", alone, _retry(same_transfer_id="false")),
    Variant(
        "held",
        alone,
        {"router.holds": "[{request: req-1, seconds: 200}]"},
        soak=("moriio-read",),
    ),
)


def cases() -> Iterator[Case]:
    """Everything the suite runs."""
    for preset, setup, variant in itertools.product(PRESETS.values(), SETUPS, VARIANTS):
        if setup.serves(preset) and setup.runs(variant):
            yield Case(preset, setup, variant)


def refused() -> Iterator[Case]:
    """For each setup and each model that it does not serve, a case."""
    for preset, setup in itertools.product(PRESETS.values(), SETUPS):
        if not setup.serves(preset):
            yield Case(preset, setup, VARIANTS[0])


def as_parameters(chosen: Iterator[Case]) -> list[object]:
    """Cases for pytest's parametrize, the long ones marked."""
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.soak] if case.is_long else [])
        for case in chosen
    ]
