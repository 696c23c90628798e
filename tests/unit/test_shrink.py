from __future__ import annotations

import msgspec
import pytest

from faults.campaign.shrink import Shrinking, size_of, with_inline_requests
from faults.cli.shrink_run import sizes_line
from faults.schedule import with_faults
from sim.engine.options import EngineOptions
from sim.errors import UsageError
from sim.kernel import Seed
from sim.scenario import (
    InlineRequest,
    InlineWorkload,
    Scenario,
    Topology,
    UniformWorkload,
    workload_of,
)
from sim.workload import Segment

BIG = with_faults(
    Scenario(
        seed=3,
        topology=Topology(2, 2),
        engine=EngineOptions(tp_size=2, executor="multi-process"),
        workload=UniformWorkload(requests=9, prompt_tokens=(200, 900), output_tokens=(4, 16)),
        perturb=True,
    ),
    ["abort:phase=decode", "crash:node=p0,for_s=8", "pause:for_s=4", "message-dropped", "abort"],
)


def names(scenario: Scenario) -> list[str]:
    return [r.request_id for r in workload_of(scenario, Seed(scenario.seed).stream("workload"))]


def test_writing_requests_out_changes_nothing() -> None:
    """The same requests at the same times."""
    inline = with_inline_requests(BIG)
    assert workload_of(inline, Seed(0).stream("x")) == workload_of(BIG, Seed(3).stream("workload"))


def test_everything_that_the_failure_does_not_need_goes() -> None:
    """Here it needs a crash of at least a second, and one certain request with 100 tokens."""

    def fails(scenario: Scenario) -> bool:
        crashes = [f for f in scenario.faults if f["kind"] == "crash" and f["for_s"] >= 1]
        assert isinstance(scenario.workload, InlineWorkload) or scenario == BIG
        long_enough = [
            spec.request_id
            for spec in workload_of(scenario, Seed(0).stream("x"))
            if spec.prompt_tokens >= 100
        ]
        return bool(crashes) and "req-4" in long_enough

    shrinking = Shrinking(BIG, fails, max_runs=500)
    small = shrinking.run()
    assert names(small) == ["req-4"]
    assert [fault["kind"] for fault in small.faults] == ["crash"]
    assert small.faults[0]["for_s"] == 1.0
    assert size_of(small)["engines"] == 2
    assert size_of(small)["tokens"] < 250
    assert (small.perturb, small.engine.tp_size) == (False, 1)
    assert small.seed == BIG.seed
    assert shrinking.runs < 200


def test_a_pool_becomes_smaller_with_the_prompts_that_fill_it() -> None:
    """Here one request waits while others, of half the pool at most, go through all of it; 17
    blocks of 16 tokens are the fewest that an engine starts with."""
    rest = [InlineRequest(f"next-{i}", (Segment(i + 2, 512),), 8) for i in range(5)]
    workload = InlineWorkload((InlineRequest("late", (Segment(1, 512),), 8), *rest))
    big = Scenario(engine=EngineOptions(num_blocks=129), workload=workload)

    def fails(scenario: Scenario) -> bool:
        assert scenario.engine.num_blocks is not None
        pool = 16 * (scenario.engine.num_blocks - 1)
        late, *others = workload_of(scenario, Seed(0).stream("x"))
        prompts = [spec.prompt_tokens for spec in others]
        return late.request_id == "late" and max(prompts) <= pool / 2 <= sum(prompts) / 2 >= 128

    shrinking = Shrinking(big, fails, max_runs=500)
    size = size_of(shrinking.run())
    assert (size["requests"], size["blocks"], size["tokens"]) == (3, 17, 1 + 1 + 2 * (128 + 2))
    assert shrinking.runs < 60
    assert "blocks" not in size_of(BIG)


def test_no_more_runs_than_allowed_are_used() -> None:
    """What was found by then is the result."""
    calls = 0

    def fails(scenario: Scenario) -> bool:
        nonlocal calls
        calls += 1
        return True

    shrinking = Shrinking(BIG, fails, max_runs=5)
    small = shrinking.run()
    assert calls == shrinking.runs == 5
    assert shrinking.cut_short
    assert size_of(small)["faults"] < 5


def test_a_step_that_cannot_run_is_not_taken() -> None:
    """A fault may name a request that a step has removed; that is no failure of the same kind."""
    named = with_faults(msgspec.structs.replace(BIG, faults=()), ["abort:request=req-2"])

    def fails(scenario: Scenario) -> bool:
        if "req-2" not in names(scenario):
            raise UsageError("there is no 'req-2'")
        return bool(scenario.faults)

    assert names(Shrinking(named, fails, max_runs=300).run()) == ["req-2"]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_it_ends_when_nothing_can_go(count: int) -> None:
    """However many faults there are, if every one is needed."""
    scenario = with_faults(msgspec.structs.replace(BIG, faults=()), ["abort"] * count)
    shrinking = Shrinking(scenario, lambda smaller: False, max_runs=500)
    assert shrinking.run() == scenario
    assert shrinking.runs < 100
    assert not shrinking.cut_short


def test_what_has_not_become_smaller_is_not_said_to_have() -> None:
    """In the line about sizes."""
    line = sizes_line({"engines": 2, "requests": 31}, {"engines": 2, "requests": 1})
    assert line == "engines still 2, requests 31 to 1"
