"""A producer and a consumer of different kinds: vLLM's MoRIIO connector on one side, ours on the
other, in either combination, on every layout that upstream transfers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from variants import has_rings, shared, together, windows

from connector.core.offer import EXTENSION_KEY
from faults.running import run as run_with_faults
from faults.schedule import parse
from sim.engine.connectors import get_connector
from sim.engine.engine import Engine
from sim.model.presets import PRESETS, ModelPreset
from sim.router.ongoing import HandOff
from sim.run import TestBed, run
from sim.scenario import InlineRequest, InlineWorkload, Scenario, Workload, with_settings
from sim.scenario.workloads import EPILOGUE
from sim.workload import Segment

MODELS = [name for name, preset in PRESETS.items() if not has_rings(preset)]
DRAFTERS = {"deepseek-mla": "mtp", "kimi-linear": "dspark"}
"""What upstream accepts beside the model's layers."""
PRODUCER_OF = {"hybrid": "moriio", "moriio": "hybrid"}
"""For each consumer, the producer of the other kind."""


def mixed(consumer: str) -> dict[str, str]:
    return {"connector": consumer, "topology.producer_connector": PRODUCER_OF[consumer]}


def apart(preset: ModelPreset) -> InlineWorkload:
    """One request after the other, of every length that makes a difference; some begin alike."""
    block = preset.tokens_per_block()
    lengths = [(1, 1), (2, block - 1), (3, 2 * block + 1), (4, 4 * block + 9), (4, 5 * block)]
    return InlineWorkload(
        tuple(
            InlineRequest(f"{length}-tokens", (Segment(content, length),), 3, arrival_s=0.5 * n)
            for n, (content, length) in enumerate(lengths)
        )
    )


def check(model: str, workload: Workload, settings: dict[str, str]) -> None:
    outcome = run(with_settings(Scenario(model=model, workload=workload), settings)).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.requirement("R6", "S7")
@pytest.mark.parametrize("consumer", PRODUCER_OF)
@pytest.mark.parametrize("model", MODELS)
def test_either_side_may_be_upstreams(model: str, consumer: str) -> None:
    """Outputs equal the definition, and everything is released. What upstream's producer no longer
    has at a window's edge is computed again."""
    preset = PRESETS[model]
    settings = {**mixed(consumer), "kv_load_failure_policy": "recompute"}
    for workload in (shared(preset), together(preset), apart(preset)):
        check(model, workload, settings)


@pytest.mark.parametrize("model", [name for name in MODELS if not windows(PRESETS[name])])
def test_a_consumer_may_wait_in_its_step_for_an_upstream_producer(model: str) -> None:
    """As upstream's own does."""
    settings = {**mixed("hybrid"), "extra_config": "{load_mode: sync}"}
    check(model, shared(PRESETS[model]), settings)


@pytest.mark.requirement("R6", "S7")
@pytest.mark.parametrize("consumer", PRODUCER_OF)
@pytest.mark.parametrize("model", ["llama", "deepseek-mla", "kimi-linear"])
def test_ranks_are_paired_as_upstream_pairs_them(model: str, consumer: str) -> None:
    """With two ranks on each side."""
    settings = {**mixed(consumer), "tp_size": "2", "executor": "multi-process"}
    check(model, shared(PRESETS[model]), settings)


@pytest.mark.parametrize("consumer", PRODUCER_OF)
@pytest.mark.parametrize("model", DRAFTERS)
def test_either_side_may_be_upstreams_while_both_draft(model: str, consumer: str) -> None:
    """With the drafters that upstream accepts. They take no time, because upstream's producer does
    not wait for its own, which is one of the findings."""
    drafting = {"speculation.method": DRAFTERS[model], "draft_us": "0"}
    check(model, shared(PRESETS[model]), {**mixed(consumer), **drafting})


@pytest.fixture
def comes_back_as(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has p0 start again with the connector of that name, at the address that it had."""
    restart = Engine.restart

    def change(connector: str) -> None:
        def come_back(engine: Engine) -> Any:
            if engine.name == "p0":
                engine.connector = replace(engine.connector, kind=get_connector(connector))
            return restart(engine)

        monkeypatch.setattr(Engine, "restart", come_back)

    return change


@pytest.mark.requirement("S7")
@pytest.mark.parametrize("first", PRODUCER_OF)
def test_a_producer_may_come_back_as_the_other_kind(
    first: str, comes_back_as: Callable[[str], None]
) -> None:
    """At the address that it had, as when it is rolled back. The consumer goes on living."""
    comes_back_as(PRODUCER_OF[first])
    times = (0.1, 0.2, 20.0, 25.0, 30.0)
    workload = InlineWorkload(
        tuple(InlineRequest(f"r{n}", (Segment(n, 200),), 6, time) for n, time in enumerate(times))
    )
    settings = {
        "connector": "hybrid",
        "topology.producer_connector": first,
        "kv_load_failure_policy": "fail",
    }
    scenario = with_settings(Scenario(model="llama", workload=workload), settings)
    crash: list[Any] = [msgspec.to_builtins(parse("crash:node=p0,at_s=1,for_s=5"))]
    outcome = run_with_faults(msgspec.structs.replace(scenario, faults=crash)).result.outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"]


@pytest.mark.requirement("R6", "S7")
def test_nothing_of_ours_reaches_a_producer_that_has_come_back_as_upstreams(
    comes_back_as: Callable[[str], None],
) -> None:
    """Whose thread of handshakes a renewal would end: one request waits in the consumer's queue
    behind a long one across the restart, and its lease is renewed. It fails, and no other."""
    comes_back_as("moriio")
    lengths = {0.1: 6, 0.2: 600, 0.7: 6, 20.0: 6, 25.0: 6}
    workload = InlineWorkload(
        tuple(
            InlineRequest(f"r{n}", (Segment(n, 200),), length, time)
            for n, (time, length) in enumerate(lengths.items())
        )
    )
    settings = {
        "connector": "hybrid",
        "topology.producer_connector": "hybrid",
        "kv_load_failure_policy": "fail",
        "engine.max_num_seqs": "1",
    }
    scenario = with_settings(Scenario(model="llama", workload=workload), settings)
    crash: list[Any] = [msgspec.to_builtins(parse("crash:node=p0,at_s=1,for_s=2"))]
    outcome = run_with_faults(msgspec.structs.replace(scenario, faults=crash)).result.outcome
    assert outcome.violations == []
    assert outcome.requests == {"total": 5, "length": 4, "error": 1, "unfinished": 0}


# -------------------------------------------------------------- what goes over the wire


class HandOffs:
    """A rule that changes nothing and keeps what producers return, by request."""

    def __init__(self) -> None:
        self.by_request: dict[str, dict[str, Any]] = {}

    def __call__(self, bed: TestBed) -> None:
        bed.router.verdicts.add(self)

    def judge(self, item: Any) -> None:
        if isinstance(item, HandOff) and item.params and not item.request_id.startswith(EPILOGUE):
            self.by_request[item.request_id] = dict(item.params)


def handed_over(scenario: Scenario, settings: dict[str, str]) -> dict[str, dict[str, Any]]:
    hand_offs = HandOffs()
    run(with_settings(scenario, settings), prepare=hand_offs)
    return hand_offs.by_request


def without_dropped_tokens(workload: InlineWorkload, preset: ModelPreset) -> InlineWorkload:
    """Without prompts whose last token has a block of its own, if the model has windows: our
    producer drops that token, and so allocates other blocks than upstream's from there on."""
    if not windows(preset):
        return workload
    block = preset.tokens_per_block()
    kept = (r for r in workload.requests if (r.prompt[0].n_tokens - 1) % block)
    return InlineWorkload(tuple(kept))


@pytest.mark.parametrize("consumer", PRODUCER_OF)
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        *((model, {}) for model in MODELS),
        *((model, {"speculation.method": method}) for model, method in DRAFTERS.items()),
    ],
    ids=str,
)
def test_producers_of_both_kinds_return_the_same_bytes(
    model: str, settings: dict[str, str], consumer: str
) -> None:
    """Whatever consumer there is, all that the one returns is what the other does, byte for byte,
    but for the one key that ours adds."""
    workload = without_dropped_tokens(apart(PRESETS[model]), PRESETS[model])
    scenario = Scenario(model=model, workload=workload)
    scenario = with_settings(scenario, settings | {"draft_us": "0"})
    fleet = handed_over(scenario, mixed(consumer))
    pure = handed_over(scenario, {"connector": consumer})
    assert set(fleet) == set(pure) == {request.request_id for request in workload.requests}
    encode = msgspec.msgpack.Encoder(order="sorted").encode
    for request in fleet:
        extensions = [found[request].pop(EXTENSION_KEY, None) for found in (fleet, pure)]
        assert extensions.count(None) == 1, "one of the two producers is ours"
        blocks = [encode(found[request]["remote_block_ids"]) for found in (fleet, pure)]
        assert blocks[0] == blocks[1]
        assert encode(fleet[request]) == encode(pure[request])


def test_a_block_of_a_dropped_token_alone_is_null() -> None:
    """Where upstream names a block that its consumer takes and computes anew. Everything before
    is the same."""
    block = PRESETS["gemma-swa"].tokens_per_block()
    request = InlineRequest("edge", (Segment(1, 2 * block + 1),), 3)
    scenario = Scenario(model="gemma-swa", workload=InlineWorkload((request,)))
    ours, theirs = (
        handed_over(scenario, {"connector": name})["edge"]["remote_block_ids"]
        for name in ("hybrid", "moriio")
    )
    assert [len(ids) for ids in ours] == [len(ids) for ids in theirs] == [3] * len(ours)
    assert all(ids[-1] == 0 and 0 not in ids[:-1] for ids in ours)
    assert all(0 not in ids for ids in theirs)
