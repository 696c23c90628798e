"""Prompts that find a consumer's cache in every way: none, a part or all, with or without a state.

A cell is a prompt that the consumer gets after others have left their blocks there: the same one,
longer or shorter ones, one that shares the first block, several, or none. Lengths lie around the
ends of blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import msgspec

from sim.model.presets import get_preset
from sim.outcome import Outcome
from sim.run import run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Topology, with_settings
from sim.workload import Segment
from tests.scenario.hits import Hit, HitProbe

Settings = dict[str, str]
Kind = tuple[str, str, str]

BRIEF, ALL = (2,), (1, 2, 3)
"""Of which blocks prompts end around."""

SERVED_BY_THEN_S = 5.0
"""When all earlier prompts have been served."""

# What was found, whether the groups agreed on it, and what came from outside.
_NOTHING: set[Kind] = {("none", "agreed", external) for external in ("0", "1", "many")}
_AGREED: set[Kind] = {
    ("partial", "agreed", "1"),
    ("partial", "agreed", "many"),
    ("full", "agreed", "0"),
}
_DIVERGED: set[Kind] = {
    ("partial", "diverged", "1"),
    ("partial", "diverged", "many"),
    ("full", "diverged", "1"),
}
# MTP's rows depend on the next token, so vLLM gives up the last block of a hit, and keeps states a
# block before the end of a prompt only, which none is loaded for.
_MTP: set[Kind] = {("partial", "diverged", "many")}


@dataclass(frozen=True)
class Served:
    """A model as it is served, and the kinds of hit that its prompts must come to.

    Args:
        kinds: after hand-offs.
        kinds_after_prefills: after prefills on the consumer itself.
    """

    model: str
    kinds: set[Kind]
    kinds_after_prefills: set[Kind]
    speculation: Settings = field(default_factory=dict)
    drafts: int = 0

    def block(self, tp_size: int = 1) -> int:
        """Tokens of a block."""
        preset = get_preset(self.model)
        return preset.tokens_per_block(tp_size, num_speculative_tokens=self.drafts)


def _speculating(method: str, drafts: int) -> Settings:
    return {"speculation.method": method, "num_speculative_tokens": str(drafts)}


SERVED = {
    "llama": Served("llama", _NOTHING | _AGREED, _NOTHING | _AGREED),
    "gemma-swa": Served("gemma-swa", _NOTHING | _AGREED, _NOTHING | _AGREED),
    "kimi-linear": Served("kimi-linear", _NOTHING | _AGREED | _DIVERGED, _NOTHING | _AGREED),
    "kimi-linear-dspark": Served(
        "kimi-linear",
        _NOTHING | _AGREED | _DIVERGED,
        _NOTHING | _AGREED,
        _speculating("dspark", 3),
        3,
    ),
    "qwen-hybrid": Served("qwen-hybrid", _NOTHING | _AGREED | _DIVERGED, _NOTHING | _AGREED),
    "qwen-hybrid-mtp": Served(
        "qwen-hybrid",
        _NOTHING | _MTP,
        _NOTHING | {("partial", "agreed", "many")},
        _speculating("mtp", 2),
        2,
    ),
    "glm-flash-nospec": Served(
        "glm-flash-nospec", _NOTHING | _AGREED | _DIVERGED, _NOTHING | _AGREED
    ),
    "glm-flash": Served("glm-flash", _NOTHING | _MTP, _NOTHING | {("partial", "agreed", "many")}),
}


def cells(block: int, ends: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Names, the tokens of the earlier prompts, and those of the prompt itself.

    Args:
        block: tokens of one.
        ends: of which blocks prompts end around.
    """
    lengths = [1, 2, *(n * block + rest for n in ends for rest in (0, 1, 2, 5))]
    earlier: dict[str, Callable[[int], tuple[int, ...]]] = {
        "none": lambda n: (),
        "same": lambda n: (n,),
        "one-less": lambda n: (n - 1,),
        "one-more": lambda n: (n + 1,),
        "more": lambda n: (n + 3,),
        "one-block": lambda n: (block + 1,),
        "whole-blocks": lambda n: ((n - 2) // block * block + 1, n + 3),
        "one-block-less": lambda n: ((n - 2) // block * block - block + 1, n + 3),
    }
    for (name, lengths_of), length in itertools.product(earlier.items(), lengths):
        yield f"{name}-{length}", tuple(n for n in lengths_of(length) if n > 0), length


def workload(block: int, ends: Sequence[int] = BRIEF) -> InlineWorkload:
    """The earlier prompts, then those that follow, close together so that some decode meanwhile."""
    before, after = [], []
    for n, (name, earlier, length) in enumerate(cells(block, ends)):
        for i, tokens in enumerate(earlier):
            arrival_s = 0.5 * i + 0.004 * n
            before.append(InlineRequest(f"before-{i}-{name}", (Segment(n, tokens),), 4, arrival_s))
        arrival_s = SERVED_BY_THEN_S + 0.004 * n
        after.append(InlineRequest(name, (Segment(n, length),), 4, arrival_s))
    return InlineWorkload((*before, *after))


def scenario(served: Served, settings: Settings, ends: Sequence[int] = BRIEF) -> Scenario:
    """A pair with this project's connector; MTP and DSpark speculate where ``served`` says so."""
    block = served.block(int(settings.get("tp_size", "1")))
    plain = Scenario(model=served.model, workload=workload(block, ends))
    return with_settings(plain, {"connector": "hybrid", **served.speculation, **settings})


@dataclass(frozen=True)
class Result:
    """Of one run: what was found for each prompt, and what the client got."""

    outcome: Outcome
    hits: dict[str, Hit]
    tokens: dict[str, list[int]]

    @property
    def kinds(self) -> set[Kind]:
        return {hit.kind for hit in self.hits.values()}


def result_of(chosen: Scenario) -> Result:
    """Run it and look on."""
    probe = HitProbe()
    result = run(chosen, probe=probe)
    probe.take_first_passes(result.log)
    return Result(result.outcome, probe.hits, probe.tokens)


@cache
def colocated_tokens(name: str, ends: tuple[int, ...] = BRIEF) -> dict[str, list[int]]:
    """What one engine answers that prefills and decodes by itself."""
    paired = scenario(SERVED[name], {}, ends)
    alone = result_of(msgspec.structs.replace(paired, topology=Topology(colocated=True)))
    assert alone.outcome.violations == []
    return alone.tokens
