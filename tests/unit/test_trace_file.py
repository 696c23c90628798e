from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.trace import Trace, build
from faults.trace.events import Begin, End, FlowEnd, FlowStart, Named, Slice, Timed
from faults.trace.events import Counter as Values

PASSING = ["run", "--requests", "2", "--set", "length_scale=0.02", "--set", "num_blocks=100"]


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
    return [e.args for e in made.traceEvents if isinstance(e, Values) and e.name == name]


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


def test_the_file_of_a_real_run_is_as_the_format_wants_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every event has exactly its fields; lanes have names, pairs close, arrows begin and end on
    slices, and nothing that was there is overwritten."""
    monkeypatch.chdir(tmp_path)
    assert dispatch.run([*PASSING, "--out", "kept"]) == ExitCode.OK
    capsys.readouterr()
    assert dispatch.run(["trace", "kept", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["written"] == "kept/trace.json"
    made = msgspec.json.decode(Path("kept/trace.json").read_bytes(), type=Trace)
    events = made.traceEvents
    timed = [e for e in events if isinstance(e, Timed)]
    named = {(e.pid, e.tid) for e in events if isinstance(e, Named) and e.name == "thread_name"}
    assert {(e.pid, e.tid) for e in timed} <= named
    opened = Counter(e.id for e in events if isinstance(e, Begin))
    assert opened == Counter(e.id for e in events if isinstance(e, End))
    slices = {(e.pid, e.tid, e.ts) for e in events if isinstance(e, Slice)}
    flows = [e for e in events if isinstance(e, FlowStart | FlowEnd)]
    assert flows
    assert all((e.pid, e.tid, e.ts) in slices for e in flows)
    assert [e.ts for e in timed] == sorted(e.ts for e in timed)
    lanes = {e.args["name"] for e in events if isinstance(e, Named)}
    assert {"router", "engine p0", "engine d0", "rank 0", "network card of d0"} <= lanes
    assert dispatch.run(["trace", "kept"]) == ExitCode.BAD_USAGE
    assert "trace.json: exists already" in capsys.readouterr().err
    assert dispatch.run(["trace", "kept", "--force"]) == ExitCode.OK
