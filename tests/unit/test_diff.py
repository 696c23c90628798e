from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from faults.artifact import Artifact
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.differences import Side, ends, given, outputs, stories
from faults.schedule import with_faults
from sim.engine.options import EngineOptions
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.router.options import Hold, RouterOptions
from sim.scenario import Scenario, UniformWorkload

SMALL = ["run", "--requests", "3", "--set", "length_scale=0.02"]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def diff(capsys: pytest.CaptureFixture[str], a: str, b: str) -> tuple[dict[str, Any], str]:
    """The document, and what people see of it."""
    capsys.readouterr()
    assert dispatch.run(["diff", a, b, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert dispatch.run(["diff", a, b]) == ExitCode.OK
    return document, " ".join(capsys.readouterr().out.split())


def test_a_fault_parts_two_runs_where_it_strikes(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything before is equal, and the story of the request is told on both sides."""
    fault = ["--fault", "hand-off-lost:request=req-1"]
    dispatch.run([*SMALL, "--out", "a"])
    dispatch.run([*SMALL, *fault, "--out", "b"])
    document, text = diff(capsys, "a", "b")
    assert document["same"] is False
    assert [line.partition(":")[0] for line in document["given"]] == ["faults[0]"]
    assert document["parting"]["b"].startswith("fault-hit")
    (ended,) = document["ends"].items()
    assert ended[0] == "req-1"
    assert [outcome.partition(" ")[0] for outcome in ended[1]] == ["length", "hand-off-lost"]
    for name in "ab":
        told = [moment["text"] for moment in document[name]["story"]]
        assert any("req-1" in line for line in told)
        assert not any("req-2" in line for line in told)
    for words in ("first difference", "how it came about in A", "how it came about in B"):
        assert words in text


def test_a_run_that_passes_is_told_of_the_requests_that_the_other_is_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Here of the one that the fault struck, and of the one that suffers from it in the end."""
    dispatch.run([*SMALL, "--out", "a"])
    dispatch.run([*SMALL, "--fault", "completion-error:request=req-1", "--out", "b"])
    document, _ = diff(capsys, "a", "b")
    assert [document[each]["verdict"] for each in "ab"] == ["pass", "violation"]
    for name in "ab":
        told = " ".join(moment["text"] for moment in document[name]["story"])
        assert "req-1-d0" in told
        assert "epilogue-d0" in told


def side(*wrong: tuple[str, int, list[int], list[int]], seed: int = 0) -> Side:
    """A run in which r0 to r3 were answered and r4 was not, some ``wrong``: the request, the first
    token that is, and from there what there was and should be."""
    outcomes = {"r0": "length", "r1": "stop", "r2": "length", "r3": "length", "r4": "error"}
    violations = [
        Violation(
            "same-output",
            0.0,
            None,
            request,
            "...",
            {"first_difference": first, "tokens": tokens, "expected": expected},
        )
        for request, first, tokens, expected in wrong
    ]
    records = [
        Record(0, "router", "request-ended", {"request": request, "outcome": outcome, "tokens": 9})
        for request, outcome in outcomes.items()
    ]
    artifact = cast("Artifact", SimpleNamespace(violations=violations))
    return Side(Path(), Scenario(seed=seed), artifact, records)


def differing(one: Scenario, other: Scenario) -> list[str]:
    """What ``given`` says of runs of the two."""
    sides = [Side(Path(), scenario, passed("x"), []) for scenario in (one, other)]
    return given(*sides)


def test_of_faults_that_differ_it_is_told_how_and_no_default() -> None:
    """Key by key where the kind is one, and whole, as they are typed, where it is not; also of a
    kind that is not installed."""
    same = "hand-off-lost:request=req-0"
    a = with_faults(Scenario(), [same, "crash:node=p0,for_s=5", "link-down:at_s=1,node=d0"])
    b = with_faults(Scenario(), [same, "crash:node=d0,for_s=5", "corrupt-bytes:nth=2,event=posted"])
    (like_crash, *_) = with_faults(Scenario(), ["crash:at_s=2"]).faults
    own = {**like_crash, "kind": "my-jitter", "up_to_ms": 5.0}
    del own["for_s"]
    b = msgspec.structs.replace(b, faults=(*b.faults, own))
    assert differing(a, b) == [
        'faults[1].target.node: "p0" and "d0"',
        "faults[2]: link-down:at_s=1.0,node=d0 and corrupt-bytes:event=posted,nth=2",
        "faults[3]: none and my-jitter:up_to_ms=5.0,at_s=2.0",
    ]


def test_entries_of_lists_are_told_one_by_one_and_empty_settings_not_at_all() -> None:
    """As requests that the router holds back, and settings of which one side has none."""
    holds = [Hold("req-1", 2.0), Hold("req-2", 3.0)]
    a = Scenario(router=RouterOptions(holds=tuple(holds)), extra_config={"defer_timeout": 0.5})
    b = Scenario(router=RouterOptions(holds=(Hold("req-1", 4.0),)))
    assert differing(a, b) == [
        "extra_config.defer_timeout: 0.5 and none",
        "router.holds[0].seconds: 2.0 and 4.0",
        'router.holds[1]: {"request":"req-2","seconds":3.0} and none',
    ]
    c = Scenario(router=RouterOptions(holds=(Hold("req-1", 4.0),)), extra_config={"x": [1, 2]})
    assert differing(b, c) == ["extra_config.x: none and [1,2]"]


def test_a_request_that_did_not_end_is_told_from_one_that_was_never_sent() -> None:
    """As runs of other workloads have."""
    a, b = side(), side()
    arrived = Record(0, "router", "request-arrived", {"request": "r4"})
    kept = [record for record in b.records if record.fields["request"] not in ("r3", "r4")]
    b = replace(b, records=[arrived, *kept])
    assert ends(a, b) == {
        "r3": ("length (9 tokens)", "not sent"),
        "r4": ("error (9 tokens)", "not ended"),
    }


def passed(name: str) -> Artifact:
    """Of a run that broke no rule."""
    artifact = SimpleNamespace(
        violations=[],
        verdict="pass",
        signature=[],
        event_hash=name,
        versions={},
        guest_digest="",
    )
    return cast("Artifact", artifact)


def test_two_connectors_are_compared_by_what_they_have_in_common(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And people are told that the rest is not."""
    sides = {"a": side(), "b": side(), "c": side()}
    for name, one in sides.items():
        scenario = Scenario(connector="reference" if name == "c" else "moriio")
        sides[name] = replace(one, scenario=scenario, artifact=passed(name))
    monkeypatch.setattr(Side, "read", lambda path: sides[str(path)])
    document, text = diff(capsys, "a", "b")
    assert document["compares_everything"]
    assert "only what engines" not in text
    document, text = diff(capsys, "a", "c")
    assert not document["compares_everything"]
    assert "what went on inside the connectors are not" in text


def test_runs_of_two_scenarios_are_said_to_be_that_and_not_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What differs is told briefly; the histories are compared if a request is in both."""

    def ran(name: str, requests: int, *arrived: str) -> Side:
        workload = UniformWorkload(requests=requests, prompt_tokens=(9, 9), output_tokens=(2, 2))
        fields = {"prompt_tokens": 9, "max_tokens": 2}
        records = [
            Record(number, "router", "request-arrived", {"request": request, **fields})
            for number, request in enumerate([*arrived, "epilogue"])
        ]
        scenario = Scenario(workload=workload, engine=EngineOptions(num_blocks=10 * requests))
        return Side(Path(), scenario, passed(name), records)

    sides = {
        "a": ran("a", 2, "late", "next"),
        "b": ran("b", 3, "r0", "r1", "r2"),
        "c": ran("c", 4, "next", "late"),
    }
    monkeypatch.setattr(Side, "read", lambda path: sides[str(path)])
    document, text = diff(capsys, "a", "b")
    assert (document["apart"], document["comparable"]) == (["workload"], False)
    assert (document["parting"], document["ends"]) == (None, {})
    assert "not two runs of one scenario: workload differs" in text
    assert "moriio, TP 1, single-process, 3 requests (r0 to r2)" in text
    assert text.endswith(
        "so their histories are not compared given otherwise engine.num_blocks: 20 and 30"
    )
    for words in ("first difference", "how requests ended", "how it came about"):
        assert words not in text
    document, text = diff(capsys, "a", "c")
    assert document["comparable"]
    assert "not two runs of one scenario" in text
    assert "first difference A: request-arrived" in text


def test_the_story_of_the_other_side_has_no_transfers_of_the_first() -> None:
    """Their numbers mean other transfers there: told are those before its own first pass."""
    wrong = Violation(
        "use-after-free", 0.0, "d0", "r0-d0", "...",
        {"transfer": 7, "source_node": "p0", "source_block_ids": [4]},
    )  # fmt: skip
    fields = {"initiator": "d", "target": "p", "operation": "read"}
    held = {"node": "d0", "request": "r0-d0", "group": 0, "blocks": [[8, 9]]}
    began = {"node": "d0", "rank": 0, "requests": [["r0-d0", 5, 6]]}
    records = [
        Record(1, "d0/core/main", "blocks-held", held),
        Record(2, "d0/core/main", "posted", {**fields, "uid": 3}),
        Record(3, "hw", "forward-began", began),
        Record(4, "d0/core/main", "posted", {**fields, "uid": 7}),
    ]
    broken = cast("Artifact", SimpleNamespace(violations=[wrong]))
    a, b = replace(side(), artifact=broken), replace(side(), records=records)
    assert [moment.text for moment in stories(a, b)[1]] == [
        "d0 gives blocks 8-9 to r0-d0",
        "d0 posts an RDMA read (transfer 3)",
        "the first forward pass of r0-d0 begins on d0: it reads tokens 0-4 and writes token 5",
    ]


def test_the_first_token_that_differs_is_told_of_both_outputs() -> None:
    """One wrong, both wrong in different places, in the same, in the same way, and too short; what
    was not answered, or not asked alike, is not compared."""
    a = side(("r0", 2, [7, 8], [1, 2]), ("r1", 5, [7], [1]), ("r2", 3, [4, 5], [6, 6]))
    b = side(
        ("r1", 4, [3, 9], [2, 1]),
        ("r2", 3, [4, 5], [6, 6]),
        ("r3", 6, [], [8]),
        ("r4", 0, [1], [2]),
    )
    assert outputs(a, b) == {
        "r0": (2, "7", "1"),
        "r1": (4, "2", "3"),
        "r3": (6, "8", "no token"),
    }
    assert outputs(a, side(("r2", 3, [4, 9], [6, 6])))["r2"] == (4, "5", "9")
    assert outputs(a, side(seed=1)) == {}


def test_of_two_connectors_only_what_both_have_is_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their messages differ from the first on, which tells nothing. Their answers are compared: a
    flipped bit makes a wrong token, where bytes go through the network."""
    flipped = ["--fault", "corrupt-bytes:request=req-1"]
    for connector in ("hybrid", "reference"):
        dispatch.run([*SMALL, *flipped, "--connector", connector, "--out", connector])
    document, text = diff(capsys, "hybrid", "reference")
    assert 'connector: "hybrid" and "reference"' in document["given"]
    kinds = [document["parting"][each].partition(" ")[0] for each in "ab"]
    assert not {"message-sent", "posted", "control-plane-exchange"} & set(kinds)
    assert document["parting"]["before"]
    ((name, at),) = document["outputs"].items()
    assert name == "req-1"
    line = f"output token {at['token']} is {at['a']} and {at['b']}"
    assert f"outputs that differ req-1: {line}" in text


def test_of_two_connectors_a_later_time_is_no_difference_and_another_order_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One loads in 3 ns, the other in 5, during which p0 lets go of blocks: that tells nothing.
    That p0 gives the blocks away before it lets go of them elsewhere does."""

    def ran(connector: str, load: int, *freed_and_held: str) -> Side:
        began = {"node": "d0", "rank": 0, "requests": [["r0-d0", 5, 6]]}
        held = {"group": 0, "blocks": [[1, 2]]}
        records = [
            Record(1, "d0/core/main", "blocks-held", {"node": "d0", "request": "r0-d0", **held}),
            Record(1 + load, "hw", "forward-began", began),
            *(
                Record(5 + place, "p0/core/main", kind, {"node": "p0", "request": "r0-p0", **held})
                for place, kind in enumerate(freed_and_held)
            ),
        ]
        records.sort(key=lambda record: record.time_ns)
        return Side(Path(), Scenario(connector=connector), passed(connector), records)

    sides = {
        "a": ran("moriio", 3, "blocks-freed", "blocks-held"),
        "late": ran("hybrid", 5, "blocks-freed", "blocks-held"),
        "other": ran("hybrid", 5, "blocks-held", "blocks-freed"),
    }
    monkeypatch.setattr(Side, "read", lambda path: sides[str(path)])
    document, text = diff(capsys, "a", "late")
    assert (document["parting"], document["times_part_s"]) == (None, 4e-9)
    assert "times alone differ earlier, from 0.000000 s on" in text
    document, text = diff(capsys, "a", "other")
    parted = document["parting"]
    assert parted["a"].startswith("blocks-freed at 0.000000005 s in p0/core/main")
    assert parted["b"].startswith("blocks-held at 0.000000005 s in p0/core/main")
    assert (parted["number"], document["times_part_s"]) == (1, 4e-9)


def test_a_run_is_the_same_as_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """To the order of tasks; and what is no run is refused by name."""
    dispatch.run([*SMALL, "--out", "a"])
    document, text = diff(capsys, "a", "a")
    assert (document["same"], document["parting"], document["given"]) == (True, None, [])
    assert "the same history" in text
    assert dispatch.run(["diff", "a", "nowhere"]) == ExitCode.BAD_USAGE
    assert "nowhere: does not exist" in capsys.readouterr().err
