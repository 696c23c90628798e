from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trace_format import complaints

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.trace import Trace, build
from faults.trace.events import Counter, End, FlowEnd, FlowStart, Named
from sim.pool import pool_of

PASSING = ["run", "--requests", "2", "--set", "length_scale=0.02"]


class Log:
    """Records of an event log, a millisecond apart."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, actor: str, kind: str, **fields: Any) -> Log:
        t_ns = len(self.records) * 1_000_000
        self.records.append({"t_ns": t_ns, "actor": actor, "kind": kind, **fields})
        return self

    def held(self, request: str, *runs: list[int]) -> Log:
        fields = {"node": "d0", "request": request, "group": 0, "blocks": list(runs)}
        return self.add("d0/core/main", "blocks-held", **fields)

    def work(self, kind: str, **fields: Any) -> Log:
        ends = {"initiator": "d", "target": "p", "operation": "read", "uid": 3, "queue_pair": 8}
        return self.add("d0/core/loader" if kind == "posted" else "hw", kind, **ends, **fields)


def trace(log: Log, num_blocks: int | None = None) -> Trace:
    return build(log.records, num_blocks=num_blocks, about={})


def values(made: Trace, name: str) -> list[dict[str, int]]:
    return [e.args for e in made.traceEvents if isinstance(e, Counter) and e.name == name]


def test_counters_follow_blocks_requests_and_transfers() -> None:
    """A block that two share counts once, the null block not at all."""
    log = Log().add("router", "leg-sent", request="r1", leg="r1-d0", node="d0")
    log.held("r1-d0", [0, 2]).held("r2-d0", [2, 3]).work("posted").work("posted")
    log.work("completion", status="SUCCESS")
    log.add("d0/core/main", "blocks-freed", node="d0", request="r1-d0")
    log.add("router", "leg-finished", request="r1", leg="r1-d0", node="d0", outcome="length")
    made = trace(log, num_blocks=10)
    held = [2, 3, 2]
    assert values(made, "blocks of d0") == [{"free": 9 - n, "held": n} for n in held]
    assert values(made, "transfers of d0") == [{"in flight": n} for n in (1, 2, 1)]
    assert values(made, "requests of d0") == [
        {"waiting": waiting, "running": running}
        for waiting, running in ((1, 0), (0, 1), (0, 1), (1, 0), (0, 0))
    ]
    assert values(trace(log), "blocks of d0") == [{"held": n} for n in held]


def test_arrows_lead_from_sending_to_delivery_and_from_posting_to_landing() -> None:
    """Equal messages in their order; one that is lost has no arrowhead."""
    log = Log()
    message = {"source": "d0/core", "target": "p0/core", "port": 9, "digest": "a", "bytes": 1}
    for kind in ("message-sent", "message-sent", "message-delivered"):
        log.add("hw", kind, **message)
    made = trace(log.work("posted").work("landed")).traceEvents
    starts = {e.id: e for e in made if isinstance(e, FlowStart)}
    ends = [e for e in made if isinstance(e, FlowEnd)]
    assert [(starts[e.id].ts, e.ts) for e in ends] == [(0, 2000), (3000, 4000)]
    assert all(starts[e.id].name == e.name for e in ends)
    assert len(starts) == 3


def test_what_never_ends_is_closed_at_the_end_of_the_trace() -> None:
    """A viewer would drop it otherwise."""
    log = Log().add("router", "request-arrived", request="r1").work("posted").add("hw", "other")
    ends = [e for e in trace(log).traceEvents if isinstance(e, End)]
    assert [(e.name, e.ts) for e in ends] == [("r1", 2000), ("read 3 (1)", 2000)]
    assert all(e.args == {"outcome": "never ended"} for e in ends)


def test_what_happens_within_a_microsecond_does_not_overlap() -> None:
    """A viewer drops a slice that begins within another and ends after it."""
    log = Log().work("posted").work("posted").work("landed").work("landed")
    for record, t_ns in zip(log.records, (0, 0, 5_000, 5_400), strict=True):
        record["t_ns"] = t_ns
    made = msgspec.to_builtins(trace(log))
    assert [e["ts"] for e in made["traceEvents"] if e["ph"] == "f"] == [5.0, 5.4]
    assert complaints(made) == []


_SLICE: dict[str, Any] = {"ph": "X", "name": "a", "cat": "c", "pid": 1, "tid": 1, "ts": 1, "dur": 2}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ph": "Z"}, "unknown phase"),
        ({"ts": "1"}, "times are numbers"),
        ({"ts": 2}, "overlaps"),
        ({"ts": 0}, "not in order"),
        ({"tid": 2}, "has no name"),
        ({"ph": "b", "id": "x"}, "never ends"),
        ({"ph": "e", "id": "x"}, "has not begun"),
        ({"ph": "s", "id": 1, "ts": 4}, "has no slice"),
        ({"ph": "f", "id": 1, "bp": "e"}, "without a beginning"),
        ({"ph": "C", "args": {"n": "1"}}, "counters are numbers"),
        ({"ph": "M", "args": {"name": "x"}}, "metadata is a name"),
    ],
)
def test_what_a_viewer_would_warn_of_is_found(wrong: dict[str, Any], said: str) -> None:
    """Each rule sees a file that breaks it."""
    lane = {"ph": "M", "pid": 1, "tid": 1, "args": {"name": "x"}}
    names = [{**lane, "name": name} for name in ("process_name", "thread_name")]
    assert complaints({"traceEvents": [*names, _SLICE]}) == []
    assert said in " ".join(complaints({"traceEvents": [*names, _SLICE, {**_SLICE, **wrong}]}))


def test_the_file_of_a_real_run_is_as_the_format_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No rule of the format is broken, every event has exactly its fields, and nothing that was
    there is overwritten. Free blocks are those of the pools that the run had, which its scenario
    leaves open."""
    monkeypatch.chdir(tmp_path)
    pools: list[int] = []

    def noted(*arguments: Any) -> tuple[int, int]:
        pools.append(pool_of(*arguments)[0])
        return pool_of(*arguments)

    monkeypatch.setattr("sim.deployment.pool_of", noted)
    assert dispatch.run([*PASSING, "--out", "kept"]) == ExitCode.OK
    capsys.readouterr()
    assert dispatch.run(["trace", "kept", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["written"] == "kept/trace.json"
    written = Path("kept/trace.json").read_bytes()
    assert complaints(json.loads(written)) == []
    events = msgspec.json.decode(written, type=Trace).traceEvents
    assert any(isinstance(e, FlowEnd) for e in events)
    lanes = {e.args["name"] for e in events if isinstance(e, Named)}
    assert {"router", "engine p0", "engine d0", "rank 0", "network card of d0"} <= lanes
    blocks = [e.args for e in events if isinstance(e, Counter) and e.name == "blocks of d0"]
    the_run = pools[-1]  # before it, a process has a rehearsal with a pool of its own
    assert {counted["free"] + counted["held"] + 1 for counted in blocks} == {the_run}
    assert dispatch.run(["trace", "kept"]) == ExitCode.BAD_USAGE
    assert "trace.json: exists already" in capsys.readouterr().err
    assert dispatch.run(["trace", "kept", "--force"]) == ExitCode.OK
