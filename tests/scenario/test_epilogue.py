"""The requests at the end of a run go over every pair that is left."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from sim.fabric.verdicts import WorkRequestItem
from sim.run import TestBed, run
from sim.scenario import Scenario, Topology, UniformWorkload
from sim.verdict import Fail, Verdict

TWO_BY_TWO = Scenario(
    connector="reference",
    topology=Topology(producers=2, consumers=2),
    workload=UniformWorkload(
        requests=2, prompt_tokens=(100, 100), output_tokens=(40, 40), interval_ms=20.0
    ),
)


def test_every_pair_has_to_serve_once_more() -> None:
    """Round robin would reach half of them; and none counts as a request of the workload."""
    beds: list[TestBed] = []
    outcome = run(TWO_BY_TWO, prepare=beds.append).outcome
    assert outcome.violations == []
    assert outcome.requests == {"total": 2, "length": 2, "unfinished": 0}
    results = beds[0].router.results
    last = {name: result for name, result in results.items() if name.startswith("epilogue")}
    assert sorted(last) == ["epilogue", "epilogue-1", "epilogue-2", "epilogue-3"]
    ways = {(result.prefill_engine, result.decode_engine) for result in last.values()}
    assert ways == set(itertools.product(("p0", "p1"), ("d0", "d1")))
    assert all(result.remote_cached_tokens == 99 for result in last.values())


class FailOneRead:
    """The first work request between two engines ends with a transport error."""

    def __init__(self, source: str, target: str) -> None:
        self._ends = {source, target}
        self._done = False

    def judge(self, item: Any) -> Verdict | None:
        if self._done or not isinstance(item, WorkRequestItem):
            return None
        if {item.pair.initiator_node, item.pair.target_node} != self._ends:
            return None
        self._done = True
        return Fail("RETRY_EXC", "")


def test_a_pair_that_is_cut_off_is_found_though_the_others_serve() -> None:
    """MoRIIO reads from a producer no more once a read from it has failed."""

    def prepare(bed: TestBed) -> None:
        bed.world.fabric.verdicts.add(FailOneRead("p1", "d1"))

    outcome = run(msgspec.structs.replace(TWO_BY_TWO, connector="moriio"), prepare=prepare).outcome
    assert outcome.requests == {"total": 2, "error": 1, "length": 1, "unfinished": 0}
    found = {(v.oracle, v.evidence.get("kind"), v.request_id) for v in outcome.violations}
    assert found == {("liveness", "not-recovered", "epilogue-3")}
