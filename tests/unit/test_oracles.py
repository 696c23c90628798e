from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_world import FOOTPRINT, Clock

from sim.errors import UsageError
from sim.kernel import Kernel, Seed
from sim.model.footprint import Touched
from sim.oracles import (
    ORACLES,
    BlockHistory,
    Findings,
    OracleContext,
    default_parameters,
    make_oracles,
    watch,
)
from sim.oracles.landed import pair_blocks
from sim.oracles.words import block_list
from sim.probes import Probe, Probes, StepTimes
from sim.request_ids import leg_id, leg_kind, logical_id


def context(**parameters: Any) -> OracleContext:
    clock: Any = Clock()
    return OracleContext(
        kernel=clock,
        findings=Findings(clock),
        blocks=BlockHistory(clock, lambda *_: None),
        expected_tokens=lambda request_id, n: [],
        requested_tokens=lambda request_id: 0,
        parameters={name.replace("_", "-"): values for name, values in parameters.items()},
    )


def test_every_oracle_has_a_name_a_summary_and_defaults() -> None:
    """What a list of oracles shows; the numbers of the specification stay out of it."""
    assert list(ORACLES) == [
        "wrong-bytes",
        "same-output",
        "leak",
        "use-after-free",
        "release-once",
        "liveness",
        "blast-radius",
        "fail-closed",
        "zeroing",
        "bounded-waiting",
        "unexpected-exception",
    ]
    assert all(oracle.summary[0].isupper() for oracle in ORACLES.values())
    assert default_parameters("bounded-waiting") == {"transfer_timeout_s": 30.0, "margin_s": 5.0}
    assert default_parameters("leak") == {}


def test_parameters_reach_the_oracle_they_are_for() -> None:
    """The others keep their defaults."""
    oracles = {o.name: o for o in make_oracles(context(bounded_waiting={"margin_s": 2}))}
    limits = oracles["bounded-waiting"].parameters
    assert (limits.transfer_timeout_s, limits.margin_s) == (30, 2)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leek": {}}, r"unknown oracle 'leek' \(did you mean 'leak'\?\); there are: wrong-bytes"),
        ({"leak": {"margin_s": 2}}, "oracle 'leak': .*margin_s.*it has: none"),
        ({"bounded_waiting": {"margin": 2}}, r"it has: transfer_timeout_s \(30.0\), margin_s"),
    ],
)
def test_wrong_parameters_are_refused_with_what_there_is(parameters: Any, message: str) -> None:
    """A person may have written them."""
    with pytest.raises(UsageError, match=message):
        make_oracles(context(**parameters))


def test_the_history_of_blocks_hears_everything_before_the_oracles() -> None:
    """They ask it from inside the same call."""
    probes, shared = Probes(Kernel(Seed(1)).own), context()
    oracles = watch(probes, shared)
    assert list(probes) == [shared.blocks, *oracles]


class Steps(Probe):
    """Notes the steps that it is told of."""

    def __init__(self) -> None:
        self.seen: list[StepTimes] = []

    def step_done(self, step: StepTimes) -> None:
        self.seen.append(step)


def test_a_probe_hears_what_happens_from_its_addition_on() -> None:
    """Also one that comes when others have been told already, and beside ones that do not care."""
    probes, first, second = Probes(Kernel(Seed(1)).own), Steps(), Steps()
    steps = [StepTimes("p0", 0, end_ns, model_executed=True) for end_ns in (1, 2)]
    for newcomer, step in zip((first, second), steps, strict=True):
        for probe in (Probe(), newcomer):
            probes.add(probe)
        probes.step_done(step)
        probes.steps_skipped(1, step)
    assert (first.seen, second.seen) == (steps, steps[1:])


def test_a_probe_that_does_not_care_is_not_called() -> None:
    """Of the many that watch a run, most have nothing to do with most of what happens."""
    called: list[object] = []
    probes, steps = Probes(lambda handler, *_args: called.append(handler)), Steps()
    for probe in (Probe(), steps, Probe()):
        probes.add(probe)
    probes.step_done(StepTimes("p0", 0, 1, model_executed=True))
    probes.workload_began()
    assert called == [steps.step_done]


def test_the_list_of_violations_is_bounded_by_place_and_kind() -> None:
    """Another node, another request and another kind of the same oracle have room of their own."""
    findings = Findings(Clock(), per_place=2)
    places: list[dict[str, Any]] = [
        {"node": "p0"}, {"node": "d0"}, {"request_id": "r0"}, {"node": "p0", "kind": "other"},
    ]  # fmt: skip
    for place in places * 5:
        findings.report("leak", "something", **place)
    assert [v.evidence.get("not_listed") for v in findings.violations] == [3] * 4 + [None] * 4


@pytest.mark.parametrize("kind", ["p", "d", "c"])
def test_a_leg_leads_back_to_its_request(kind: Any) -> None:
    """Also when the request's own id looks like a leg's."""
    for logical in ("req-0", "req-p1", "r-d0"):
        assert logical_id(leg_id(logical, kind, 12)) == logical
        assert leg_kind(leg_id(logical, kind, 12)) == kind
    assert (logical_id("epilogue"), leg_kind("epilogue")) == ("epilogue", None)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([7], "block 7"),
        ([3, 4, 5, 12], "blocks 3-5, 12"),
        ([5, 4], "blocks 5, 4"),
        (list(range(0, 40, 2)), "blocks 0, 2, 4, 6, 8, 10 and 14 more runs"),
    ],
)
def test_a_list_of_blocks_is_put_into_few_words(blocks: list[int], words: str) -> None:
    """Thousands of blocks fit a line."""
    assert block_list(blocks) == words


def pairs_of(source: list[tuple[int, int]], destination: list[tuple[int, int]]) -> list[Any]:
    """Of (offset, size) here and there, segment by segment."""
    ends = [FOOTPRINT.touched(*np.array(side).reshape(-1, 2).T) for side in (source, destination)]
    pairs = pair_blocks(*ends)
    columns = (pairs.segment, pairs.source, pairs.destination)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 10))))
def test_whole_blocks_are_paired_in_order(segments: list[tuple[int, int, int]]) -> None:
    """A connector merges neighbours into one segment; each block still has one partner."""
    source = [(begin * 8, count * 8) for begin, _, count in segments]
    destination = [(to * 8, count * 8) for _, to, count in segments]
    expected = [
        (number, begin + i, to + i)
        for number, (begin, to, count) in enumerate(segments)
        for i in range(count)
    ]
    assert pairs_of(source, destination) == expected


def test_a_segment_that_cuts_blocks_differently_connects_all_of_them() -> None:
    """Half of 1 and half of 2 go into 5; what surrounds the segment is paired in order."""
    source = [(8, 16), (12, 8), (24, 8)]
    destination = [(80, 16), (40, 8), (48, 8)]
    assert pairs_of(source, destination) == [
        (0, 1, 10),
        (0, 2, 11),
        (1, 1, 5),
        (1, 2, 5),
        (2, 3, 6),
    ]


def test_segments_outside_of_all_blocks_pair_nothing() -> None:
    """Padding belongs to nobody."""
    nothing = Touched(*np.empty((3, 0), dtype=np.int64))
    assert len(pair_blocks(nothing, FOOTPRINT.touched([8], [8])).segment) == 0
