"""GLM-5.3-Flash from end to end, as the shipped scenarios have it: what is read, what comes out,
and what a hand-over costs the drafter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from posted_reads import PostedReads

from faults.cli.options import RunOptions, build_scenario
from sim.model.presets import get_preset
from sim.model.speculation import accepted_drafts
from sim.outcome import Outcome
from sim.probes import Probe
from sim.request_ids import leg_kind, logical_id
from sim.run import TestBed, run
from sim.workload import prompt_token_ids

COLOCATED = "topology.colocated=true"


Answer = tuple[str, list[int]]
"""How a request ended, and its tokens."""


class Answers(Probe):
    """What clients got, by request."""

    def __init__(self) -> None:
        self.by_request: dict[str, Answer] = {}

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        if not request_id.startswith("epilogue"):
            self.by_request[request_id] = (outcome, tokens)


@dataclass(frozen=True)
class Served:
    """A shipped scenario that broke no rule: its outcome, what clients got, what consumers read."""

    outcome: Outcome
    answers: dict[str, Answer]
    reads: PostedReads
    bed: TestBed

    def accepted(self, kind: str) -> dict[str, list[int]]:
        """The accepted drafts of each step, by leg of a kind."""
        legs = self.bed.acceptance.by_leg.items()
        return {leg: steps for leg, steps in legs if leg_kind(leg) == kind}

    def predicted(self, leg: str, *, is_odd: bool) -> list[int]:
        """The drafts that each step of a leg after its first token accepts, by the drafter's
        definition; ``is_odd`` if the row before the prompt's last was made from another token."""
        bed, speculation = self.bed, self.bed.scenario.speculation
        assert speculation is not None
        spec = {spec.request_id: spec for spec in bed.requests}[logical_id(leg)]
        prompt = prompt_token_ids(spec, vocab_size=bed.world.vocab_size)
        odd_row = len(prompt) - 2 if is_odd else None
        return accepted_drafts(prompt, spec.max_tokens, bed.world.vocab_size, speculation, odd_row)


def serve(name: str, *settings: str) -> Served:
    answers, reads, beds = Answers(), PostedReads(), list[TestBed]()

    def prepare(bed: TestBed) -> None:
        beds.append(bed)
        reads.watch(bed)

    options = RunOptions(scenario=name, settings=settings)
    outcome = run(build_scenario(options), probe=answers, prepare=prepare).outcome
    assert outcome.violations == []
    assert outcome.requests["length"] == outcome.requests["total"] == len(answers.by_request)
    return Served(outcome, answers.by_request, reads, beds[0])


# ------------------------------------------------------------ recall of a context


@pytest.mark.parametrize("name", ["recall-2k", "recall-8k", "recall-32k", "recall-96k"])
def test_answers_about_a_long_context_are_those_of_one_engine(name: str) -> None:
    """Three questions about one context, two of which find part of it on the consumer."""
    served = serve(name)
    assert served.answers == serve(name, COLOCATED).answers
    reads = served.reads
    assert reads.hits["first"] == 0
    assert min(reads.hits["second"], reads.hits["third"]) > 0
    for request in served.answers:
        assert reads.counts(request) == expected_counts("glm-flash", reads, request)


# ------------------------------------------------------- the same request twice


def expected_counts(model: str, reads: PostedReads, request: str) -> dict[str, int]:
    """What a load reads: the blocks behind the local hit that hold tokens of the prompt but for
    the last, the ring, and the state of each recurrent group."""
    block = get_preset(model).tokens_per_block()
    loaded = reads.prompts[request] - 1
    behind = -(-loaded // block) - reads.hits[request] // block
    states = sum(kind.startswith("state") for kind in reads.kinds)
    return {"attention": behind, "ring": 1} | {f"state {n}": 1 for n in range(states)}


def test_of_a_prompt_that_is_partly_there_the_rest_is_read() -> None:
    """Two of four blocks are there, as vLLM drops the last whole one of a hit for the drafter."""
    served = serve("same-request-twice")
    reads = served.reads
    assert served.answers["first"] == served.answers["again"]
    assert served.answers == serve("same-request-twice", COLOCATED).answers
    assert (reads.hits["first"], reads.hits["again"]) == (0, 2 * 640)
    rest = {"ring": 1, "state 0": 1, "state 1": 1, "state 2": 1}
    assert reads.counts("first") == {"attention": 4, **rest}
    assert reads.counts("again") == {"attention": 2, **rest}


def test_of_whole_blocks_that_are_there_nothing_is_read() -> None:
    """And they are right, with the state behind them."""
    served = serve("whole-blocks-not-read")
    reads, answers = served.reads, served.answers
    assert answers == serve("whole-blocks-not-read", COLOCATED).answers
    states = {f"state {n}": 1 for n in range(4)}
    for name, blocks in (("one-block", 1), ("three-blocks", 3)):
        assert answers[name] == answers[f"{name}-again"]
        assert reads.counts(name) == {"attention": blocks, "ring": 1, **states}
        assert reads.hits[f"{name}-again"] == blocks * 640
        assert reads.counts(f"{name}-again") == {}


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_where_only_the_state_is_missing_only_ring_and_state_are_read(mode: str) -> None:
    """By a load that comes before the forward pass, whatever the mode."""
    served = serve("state-alone", f"extra_config.load_mode={mode}")
    reads = served.reads
    assert served.answers == serve("state-alone", COLOCATED).answers
    for name, blocks in (("shorter", 3), ("first-block", 1)):
        assert reads.hits[name] == blocks * 640 == reads.prompts[name] - 1
        assert reads.counts(name) == {"ring": 1} | {f"state {n}": 1 for n in range(4)}


@pytest.mark.parametrize("model", ["kimi-linear", "qwen-hybrid"])
def test_what_upstream_corrupts_is_not_read_and_right(model: str) -> None:
    """The finding's scenario, and the same for a model with other blocks."""
    length = 3 * get_preset(model).tokens_per_block() + 1
    requests = ", ".join(
        f"{{request_id: {name}, prompt: [[1, {length}]], max_tokens: 6, arrival_s: {at_s}}}"
        for name, at_s in (("first", 0), ("again", 1))
    )
    settings = (f"model={model}", f"workload.requests=[{requests}]")
    served = serve("whole-blocks-twice", *settings, "connector=hybrid")
    assert served.answers["first"] == served.answers["again"]
    assert served.answers == serve("whole-blocks-twice", *settings, COLOCATED).answers
    assert served.reads.counts("first")["attention"] == 3
    assert served.reads.counts("again") == {}


# ------------------------------------------------------ drafts after a hand-over


@pytest.fixture(scope="module")
def handed_over() -> Served:
    return serve("mtp-acceptance")


@pytest.fixture(scope="module")
def alone() -> Served:
    return serve("mtp-acceptance", COLOCATED)


def per_step(served: Served) -> list[float]:
    """Accepted drafts of each request's first steps, as the run's JSON tells them."""
    found: Any = msgspec.json.decode(msgspec.json.encode(served.outcome))
    return [step["accepted_per_step"] for step in found["speculation"]["first_steps"]]


def test_a_run_tells_what_a_hand_over_costs_the_drafter(handed_over: Served, alone: Served) -> None:
    """A consumer's first seven steps accept nothing, and the others as many as one engine's."""
    ours, theirs = per_step(handed_over), per_step(alone)
    assert ours[:7] == [0.0] * 7
    assert min(theirs) > 0.4
    assert sum(ours[7:]) / len(ours[7:]) == pytest.approx(sum(theirs) / len(theirs), abs=0.1)
    ours_in_all, theirs_in_all = handed_over.outcome.speculation, alone.outcome.speculation
    assert ours_in_all is not None
    assert theirs_in_all is not None
    assert ours_in_all.accepted_per_step < theirs_in_all.accepted_per_step - 0.05


def test_what_it_costs_is_drafts_and_no_answer(handed_over: Served, alone: Served) -> None:
    """Each request gets the tokens that one engine gives it."""
    assert handed_over.answers == alone.answers


def test_each_request_loses_the_drafts_near_the_odd_row(handed_over: Served, alone: Served) -> None:
    """Step by step: as if the row at N-2, and only that, was of another continuation."""
    legs = handed_over.accepted("d")
    assert len(legs) == len(handed_over.answers)
    assert legs == {leg: [0, *handed_over.predicted(leg, is_odd=True)] for leg in legs}
    legs = alone.accepted("c")
    assert legs == {leg: alone.predicted(leg, is_odd=False) for leg in legs}


# ------------------------------------------- what upstream's connector was written for


def test_dspark_in_one_attention_group_is_served_as_upstream_serves_it() -> None:
    """Answers and every step's accepted drafts are equal, and no draft is lost."""
    name = "dspark-one-attention-group"
    ours, theirs = serve(name), serve(name, "connector=moriio")
    assert ours.answers == theirs.answers == serve(name, COLOCATED).answers
    legs = ours.accepted("d")
    assert len(legs) == len(ours.answers)
    assert legs == theirs.accepted("d")
    assert legs == {leg: [0, *ours.predicted(leg, is_odd=False)] for leg in legs}
