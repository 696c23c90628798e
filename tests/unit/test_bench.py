from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from faults.bench.connectors import compared
from faults.bench.profile import OTHER, part_of, shares
from faults.bench.render import render
from faults.bench.scenarios import (
    COMPARE,
    CONNECTORS,
    CONNECTORS_LONG,
    DECODE,
    FAULTED,
    FAULTED_GLM,
    GROWTH,
    GROWTH_ENGINES,
    GROWTH_PROMPTS,
    HYBRID,
    IDLE,
    SECTIONS,
    STANDARD,
    TIMEOUTS,
    TRACE,
    TRACE_HOUR,
    fixed_scenario,
    with_requests,
)
from faults.bench.table import Effort, idle_figures, measured, where_and_when
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.router.options import Hold, RouterOptions

TRACE_LINE = '{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n'


def test_the_command_prints_figures_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """The fields that other tools compare from version to version."""
    arguments = ["bench", "kernel", STANDARD, "--runs", "1", "--events", "1000", "--json"]
    assert dispatch.run(arguments) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"schema_version", "machine", "sections", "left_out"}
    assert document["left_out"] == {}, "what was not asked for is not missing"
    assert {"date", "cpu", "cores", "python", "vllm", "torch", "simpy"} <= set(document["machine"])
    assert list(document["sections"]) == [STANDARD, "kernel"], "in the table's order"
    standard, kernel = document["sections"].values()
    assert (standard["verdict"], standard["runs"], standard["requests"]) == ("pass", 1, 8)
    assert sum(standard["profile"]["shares"].values()) == pytest.approx(1)
    rates = ["runs_per_s_core", "wall_s", "start_up_cpu_s", "testbed_us_per_step", "events"]
    assert all(standard[key] > 0 for key in [*rates, "virtual_per_wall", "peak_memory_mib"])
    assert kernel["events"] == 1000
    assert min(kernel["events_per_s"], kernel["bare_simpy_events_per_s"]) > 0


def test_growth_tells_the_cost_of_a_request_for_each_number() -> None:
    """Linear growth shows as equal costs."""
    points = measured(GROWTH, Effort(growth=(1, 3)))["points"]
    assert [point["requests"] for point in points] == [1, 3]
    assert all(point["verdict"] == "pass" and point["ms_per_request"] > 0 for point in points)


def test_idle_counts_the_steps_of_the_wait_only() -> None:
    """What the run does besides waiting is measured by itself and taken off."""
    router = RouterOptions(holds=(Hold("held", 0.2),))
    scenario = msgspec.structs.replace(fixed_scenario(IDLE), router=router)
    figures = idle_figures(scenario)
    assert figures["verdict"] == "pass"
    assert 150 <= figures["empty_steps"] < figures["engine_steps"]


def test_connectors_are_compared_on_the_same_requests() -> None:
    """Each path takes time, reading costs what the fabric was asked for, and what the project's
    connector asks beyond upstream is its confirmation and its answer."""
    scenario = with_requests(fixed_scenario(CONNECTORS), 3)
    models = compared(scenario, 1, ["llama", "kimi-linear"])
    assert list(models) == ["llama", "kimi-linear"]
    for upstream, ours, verified in map(dict.values, models.values()):
        for figures in (upstream, ours, verified):
            timed = ("planning_us", "posting_us", "rest_us", "load_us")
            assert min(figures[key] for key in (*timed, "held_bytes")) > 0
        assert ours["messages"] - upstream["messages"] >= 2
        assert upstream["added_us"] == 0 < ours["added_us"] <= verified["added_us"]
        assert verified["messages"] == ours["messages"], "the same question asks for digests"
        assert verified["message_bytes"] > ours["message_bytes"]
        assert ours["read_bytes"] <= upstream["read_bytes"]
        assert ours["work_requests"] <= upstream["work_requests"]


def test_a_trace_is_measured_when_there_is_one(tmp_path: Path) -> None:
    """The scenario names a file that the project does not ship."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text(TRACE_LINE * 100)
    scenario = fixed_scenario(TRACE)
    assert with_requests(scenario, 2).workload.requests == 2
    assert measured(TRACE, Effort(trace=trace))["requests"] == 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["bench", "speed"],
            "speed: no such section; there are: standard-fault-free, hybrid-standard, standard",
        ),
        (["bench", TRACE], "needs a trace; give --trace, or set FAULTLAB_TRACES"),
        (["bench", TRACE_HOUR], "trace-hour: needs a trace; give --trace"),
    ],
)
def test_a_section_that_cannot_be_measured_is_bad_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
) -> None:
    """With what there is instead, before anything is measured."""
    monkeypatch.delenv("FAULTLAB_TRACES", raising=False)
    assert dispatch.run(arguments) == ExitCode.BAD_USAGE
    assert words in capsys.readouterr().err


def test_a_section_that_nobody_left_out_is_said_to_be_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a trace the table is shorter, and says why."""
    from faults.bench import table

    monkeypatch.delenv("FAULTLAB_TRACES", raising=False)
    monkeypatch.setattr(table, "measured", lambda name, effort: {})
    assert dispatch.run(["bench", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert TRACE not in document["sections"]
    assert document["left_out"][TRACE].startswith("no trace: give --trace")
    assert document["left_out"][TRACE_HOUR].endswith("name it to run it")


def test_the_profile_counts_libraries_for_whoever_calls_them() -> None:
    """The innermost frame of a known part decides; code of no part is named as such."""
    frames = {}

    def note(name: str) -> None:
        frames[name] = part_of(sys._getframe())

    exec("note('x')", {"__name__": "vllm.v1.core.sched.scheduler", "note": note})
    note("y")
    assert frames == {"x": "vLLM scheduler", "y": OTHER}
    assert shares(with_requests(fixed_scenario(GROWTH), 2), 1)["samples"] > 0


def test_the_table_has_a_line_for_every_figure() -> None:
    """Also of the sections that are left out by default."""
    effort = Effort(runs=1, events=100, growth=(1,))
    run = measured(STANDARD, effort)
    costs = {"planning_us": 1.0, "posting_us": 2.0, "rest_us": 2.5, "load_us": 3000.0}
    costs["added_us"] = 250.0
    costs |= {"messages": 4.0, "message_bytes": 5.0, "work_requests": 6.0}
    fast = {"events_per_s": 1e6, "virtual_per_wall": 2.0, "in_order": 1.0}
    costs |= {"read_bytes": 7168.0, "held_bytes": 8.0}
    sections = {
        STANDARD: run,
        HYBRID: run,
        FAULTED: run,
        FAULTED_GLM: run,
        "kernel": measured("kernel", effort),
        COMPARE: {
            "sizes": [{"pairs": 10, "backends": {"simulator": fast, "threads": {"failed": "no"}}}],
            "left_out": {"simloop": "not installed"},
        },
        GROWTH: {"points": [{**run, "ms_per_request": 1.5}]},
        GROWTH_ENGINES: {
            "points": [{"producers": 2, "ms_per_producer": 9.0, "quiet_ms_per_way": 3.25}]
        },
        GROWTH_PROMPTS: {
            "points": [{"prompt_tokens": 512, "ms_per_request": 1.0, "us_per_token": 7.25}]
        },
        DECODE: {"us_per_step_of_eight": 321.0, "testbed_us_per_step_of_eight": 123.0},
        TIMEOUTS: {"moriio": run},
        IDLE: {**run, "empty_steps": 10, "us_per_empty_step": 2.5},
        CONNECTORS: {"models": {"llama": {"moriio": costs, "hybrid": costs}}},
        CONNECTORS_LONG: {"models": {"llama": {"moriio": costs, "hybrid": costs}}},
        TRACE: run,
        TRACE_HOUR: run,
    }
    assert set(sections) == set(SECTIONS)
    screen = io.StringIO()
    document = {"machine": where_and_when(), "sections": sections, "left_out": {}}
    render(document, Console(file=screen, width=120))
    shown = screen.getvalue()
    for words in [
        *sections,
        "runs/s/core",
        "SimPy alone",
        "1.50 ms/request",
        "2.5 µs",
        "oracles",
        "7.0 / 7.0 KiB",
        "1,000,000, 2.00, 100%",
        "simloop: not installed",
        "3.2 ms/way",
        "7.25 µs",
        "321 µs",
        "123 µs",
    ]:
        assert words in shown
