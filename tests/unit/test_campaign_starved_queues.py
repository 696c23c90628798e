"""When a campaign counts a starved queue as vLLM's own."""

from __future__ import annotations

import pytest

from faults.campaign.result import group_of
from faults.campaign.starved_queues import as_explained
from sim.kernel.log import Record
from sim.oracles import Violation

KIND = {"kind": "starved-queue"}
FOUND = [
    Violation("leak", 80.0, "d0", None, "", {**KIND, "requests": {"r1-d0": "unfinished"}}),
    Violation("liveness", 80.0, None, "r1", "", {**KIND}),
    Violation("liveness", 80.0, None, "r9", "", {"kind": "not-ended"}),
]
EXPLAINED = ["leak/starved-queue/consumer", "liveness/starved-queue", "liveness/not-ended"]
UNEXPLAINED = ["leak/consumer", "liveness/not-ended", "liveness/not-ended"]


def log(*events: str) -> list[Record]:
    """A record per event: its kind, or who has received and how that ended."""
    records = []
    for time_ns, event in enumerate(events):
        kind, _, request = event.partition(" of ")
        fields = {"request": f"{request}-d0", "failed": kind == "failure"} if request else {}
        records.append(Record(time_ns, "hw", "receiving-finished" if request else kind, fields))
    return records


@pytest.mark.parametrize(
    ("events", "groups"),
    [
        pytest.param(["fault-hit", "failure of r1"], EXPLAINED, id="a fault had hit"),
        pytest.param(["engine-died", "failure of r1"], EXPLAINED, id="an engine had died"),
        pytest.param(["failure of r1"], UNEXPLAINED, id="nothing had gone wrong"),
        pytest.param(["fault-struck", "failure of r1"], UNEXPLAINED, id="a fault hit nothing"),
        pytest.param(["failure of r1", "fault-hit"], UNEXPLAINED, id="a fault hit later"),
        pytest.param(
            ["failure of r1", "fault-hit", "failure of r1"], UNEXPLAINED, id="between two"
        ),
        pytest.param(
            ["failure of r9", "fault-hit", "failure of r1"], EXPLAINED, id="another's load"
        ),
        pytest.param(["fault-hit", "success of r1"], UNEXPLAINED, id="no load failed"),
    ],
)
def test_it_is_where_something_else_made_the_loads_fail(
    events: list[str], groups: list[str]
) -> None:
    assert [group_of(one) for one in as_explained(FOUND, log(*events))] == groups


def test_others_are_left_alone() -> None:
    assert as_explained(FOUND[2:], log("failure of r9")) == FOUND[2:]
