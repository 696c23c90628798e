"""What campaigns of the reference connector fell into, and is vLLM's: a drafter's row of another
continuation (docs/findings.md), on either side. As small as it could be made; it takes no fault."""

from __future__ import annotations

import msgspec
import pytest

from faults.campaign.result import failures_of
from faults.campaign.vllm_defects import VLLM_DEFECTS
from faults.running import run
from sim.outcome import Outcome
from sim.scenario import InlineRequest, InlineWorkload, Scenario, with_settings
from sim.workload import Segment

# Three prompts: one forks from the first at the end of a block and computes that block anew, and
# one follows the fork for more than a block, and finds the first one's block under the same hash.
ON_CONSUMERS = (((0, 236),), ((0, 192), (1, 445)), ((0, 192), (1, 224), (5, 101)))
ON_BOTH = (((1, 81), (2, 73)), ((1, 64), (6, 1038)), ((1, 64), (6, 616), (7, 40)))
CASES = [
    pytest.param(ON_CONSUMERS, (2, 1), ["consumer"], id="seed-3327"),
    pytest.param(ON_BOTH, (1, 3), ["consumer", "producer"], id="seed-3676"),
]
Prompts = tuple[tuple[tuple[int, int], ...], ...]
"""Of each prompt, tokens that it has in common with others of the same number."""
Numbers = tuple[int, int]
"""Of producers, among whom the prompts go round, and of drafts."""


def outcome_of(prompts: Prompts, numbers: Numbers, *changes: str) -> Outcome:
    requests = tuple(
        InlineRequest(f"req-{number}", tuple(Segment(*part) for part in prompt), max_tokens=3)
        for number, prompt in enumerate(prompts)
    )
    scenario = Scenario(
        model="deepseek-mla", connector="reference", workload=InlineWorkload(requests)
    )
    scenario = msgspec.structs.replace(scenario, quiet_phase_s=1.0)
    producers, drafts = numbers
    settings = {"topology": f"{{producers: {producers}}}"}
    settings["speculation"] = f"{{method: mtp, num_speculative_tokens: {drafts}}}"
    settings["async_scheduling"] = "false"
    settings.update(change.split("=", 1) for change in changes)
    return run(with_settings(scenario, settings)).result.outcome


@pytest.mark.parametrize(("prompts", "numbers", "sides"), CASES)
def test_it_is_told_from_what_a_connector_could_do(
    prompts: Prompts, numbers: Numbers, sides: list[str]
) -> None:
    """A group of its own, which fails no campaign; no output is wrong."""
    groups = [f.group for f in failures_of(outcome_of(prompts, numbers).violations)]
    assert groups == [f"wrong-bytes/drafter-row/{side}" for side in sides]
    assert set(groups) <= set(VLLM_DEFECTS)


@pytest.mark.parametrize(("prompts", "numbers", "sides"), CASES)
@pytest.mark.parametrize("change", ["topology={colocated: true}", "enable_prefix_caching=false"])
def test_it_takes_prefix_caching_and_a_connector(
    prompts: Prompts, numbers: Numbers, sides: list[str], change: str
) -> None:
    """Without a connector the hash of a block covers the token after it."""
    assert outcome_of(prompts, numbers, change).violations == []


@pytest.mark.parametrize("caching", ["false", "true"])
def test_the_block_of_another_request_is_no_defect_of_vllms(caching: str) -> None:
    """A router in error has the second one read the blocks of the first, whose prompt differs in
    the token after a block only. ``true`` would excuse it wherever prefix caching is on."""
    fork = ((0, 128), (1, 1)), ((0, 128), (2, 1))
    faulty = "faults=[{kind: mixed-up-params}]"
    held = "router={holds: [{request: req-0, seconds: 1}]}"
    changes = "connector=moriio", f"enable_prefix_caching={caching}", faulty, held
    found = outcome_of(fork, (1, 1), *changes)
    wrong = [v for v in found.violations if v.oracle == "wrong-bytes"]
    assert {v.request_id for v in wrong} == {"req-1-d0"}
    assert {v.evidence.get("kind") for v in wrong} == {None}
