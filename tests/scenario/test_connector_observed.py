"""What operators see of a run with one failed load: events and metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from connector.metrics import HybridStats
from faults.running import run
from faults.schedule import parse
from sim.engine.options import EngineOptions
from sim.outcome import RunResult
from sim.scenario import Scenario, UniformWorkload
from tests.connector_events import Events, logged

DOCUMENT = (Path(__file__).parents[2] / "docs/connector-log.md").read_text()
COMMON = set(re.findall(r"^\| `([a-z_]+)` \|", DOCUMENT.partition("## Start-up")[0], re.M))
FIELDS = {
    name: {*COMMON, *re.findall(r"`([a-z_]+)`", fields)}
    for name, fields in re.findall(
        r"^\| `([a-z-]+)` \| (?:debug|info|warning|error) \| (.*?) \| .* \|$", DOCUMENT, re.M
    )
}
PROMPT, BLOCK = 600, 16


@pytest.fixture
def events() -> Iterator[Events]:
    """Everything that connectors log, from debug on."""
    with logged() as heard:
        yield heard


@pytest.fixture
def stats(monkeypatch: pytest.MonkeyPatch) -> HybridStats:
    """What vLLM's schedulers would export, of all engines together."""
    total = HybridStats()
    update = Scheduler.update_from_output

    def watched(self: Any, scheduler_output: Any, output: Any) -> Any:
        result = update(self, scheduler_output, output)
        of_workers = output.kv_connector_output and output.kv_connector_output.kv_connector_stats
        for part in (of_workers, self.connector.get_kv_connector_stats()):
            if part is not None:
                total.aggregate(part)
        return result

    monkeypatch.setattr(Scheduler, "update_from_output", watched)
    return total


FAILS_TWICE = "completion-error:request=req-2,count=1000"


def serve(fault: str) -> RunResult:
    scenario = Scenario(
        connector="hybrid",
        model="llama",
        workload=UniformWorkload(
            requests=4, prompt_tokens=(PROMPT, PROMPT), output_tokens=(6, 6), interval_ms=300
        ),
        engine=EngineOptions(tp_size=2, executor="multi-process"),
        quiet_phase_s=20,
        extra_config={"transfer_timeout": 2, "defer_timeout": 3},
        faults=(msgspec.to_builtins(parse(fault)),),
    )
    result = run(scenario).result
    assert result.outcome.violations == []
    assert result.outcome.requests["error"] == 1
    return result


def test_events_are_as_documented(events: Events) -> None:
    """No event and no field that docs/connector-log.md does not have."""
    serve(FAILS_TWICE)
    assert len(events) > 50
    for event in events:
        assert set(event) <= FIELDS[event["event"]], event
        assert {"schema", "event", "level", "at_s"} <= set(event)


def test_a_failed_load_is_told_with_its_cause_and_what_went_before(
    events: Events,
) -> None:
    """One record after the error, bound to the request, the transfer, the peer and the rank, with
    the steps of that load on that rank, in order, and none of another's."""
    serve(FAILS_TWICE)
    failed = [event for event in events if event["event"] == "load-failed"]
    records = [event for event in events if event["event"] == "flight-record"]
    (error,), (record,) = failed[-1:], records[-1:]
    assert error["cause"] == "read-failed"
    for name in ("request", "transfer", "peer", "rank"):
        assert record[name] == error[name]
    assert "req-2" in record["request"]
    steps = [e["state"] for e in record["events"] if e["event"] == "load-moved"]
    assert steps == ["READING", "REPAIRING", "CONNECTING", "READING", "FENCED", "FAILED"]
    assert {e.get("request", record["request"]) for e in record["events"]} == {record["request"]}
    assert record["events"][-1]["event"] == "load-failed"


def test_the_record_of_a_run_has_what_the_connector_warns_of() -> None:
    """As it has what vLLM's own connectors say, on a logger that belongs to no module of vLLM."""
    result = serve(FAILS_TWICE)
    lines = [record.fields for record in result.log.records if record.kind == "log"]
    ours = [line["message"] for line in lines if "hybrid" in line["module"]]  # long ones are cut
    assert "load-failed" in [re.findall(r'"event": "([a-z-]+)"', text)[0] for text in ours]


def test_metrics_add_up_over_ranks(stats: HybridStats) -> None:
    """Two ranks, five requests with the one of the quiet phase, one of which fails on both."""
    serve(FAILS_TWICE)
    stats.reset()  # the first run of a kind rehearses
    serve(FAILS_TWICE)
    data = stats.data
    assert data["failed_loads:read-failed"] == data["repeated_loads"] == 2
    assert data["loads"] == 2 * 5 - 2
    assert len(data["load_seconds"]) == data["loads"]
    assert data["reads"] == 2 * 5 + 2
    assert data["loaded_bytes"] > 0
    assert data["renewed_connections"] == 2 * 2
    assert data["releases"] == 2 * 5
    assert data["held_leases"] == 0
    assert "expired_leases" not in data
