"""The speed table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

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
    KERNEL,
    STANDARD,
    TIMEOUTS,
    TRACE,
    TRACE_HOUR,
)
from faults.cli.tables import print_table

Row = tuple[str, str]


def render(document: Mapping[str, Any], console: Console) -> None:
    """One line a figure, then where the time of the standard run goes."""
    machine, sections = document["machine"], document["sections"]
    table = Table(title="speed")
    table.add_column("scenario", no_wrap=True)
    table.add_column("figure")
    table.add_column("value", justify="right", no_wrap=True)
    for name, figures in sections.items():
        for number, (figure, value) in enumerate(_ROWS[name](figures)):
            table.add_row("" if number else name, figure, value)
        table.add_section()
    print_table(console, table)
    for name, reason in document["left_out"].items():
        console.print(f"{name} is left out: {reason}", markup=False, highlight=False)
    if STANDARD in sections:
        _render_profile(sections[STANDARD]["profile"], console)
    console.print(
        f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, vLLM "
        f"{machine['vllm']}, torch {machine['torch']}; {machine['date']}",
        style="dim",
    )


def render_guard(document: Mapping[str, Any], console: Console) -> None:
    """One line a scenario and figure: ratios of processor time, or memory, and the loss."""
    before = "recorded"
    if "against" in document:
        before = "there"
        console.print(f"against {document['against']}", markup=False, highlight=False)
    for name, ratio in document.get("recorded", {}).items():
        console.print(f"{name}: {ratio:.3f}, in {document['file']}", highlight=False)
    for name, peak in document.get("recorded_mib", {}).items():
        console.print(f"{name}: {peak:.3f} MiB, in {document['file']}", highlight=False)
    for part, unit, worse, better in (
        ("scenarios", "", "slower", "faster"),
        ("memory_mib", " MiB", "of it new", "less"),
    ):
        for found in document.get(part, ()):
            loss, most = found["loss"], document["most_loss"]
            change = f"{loss:.0%} {worse}" if loss > 0 else f"{abs(loss):.0%} {better}"
            console.print(
                f"{found['name']}: {found['measured']:.3f}{unit}, "
                f"{before} {found['recorded']:.3f}: {change}"
                + (f", more than {most:.0%}" if loss > most else ""),
                highlight=False,
            )


def _render_profile(profile: Mapping[str, Any], console: Console) -> None:
    table = Table(title=f"where {STANDARD} spends its time")
    table.add_column("part")
    table.add_column("share", justify="right")
    for part, share in profile["shares"].items():
        table.add_row(part, f"{share:.1%}")
    print_table(console, table)


def _run_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield "runs/s/core", f"{figures['runs_per_s_core']:.2f}"
    yield f"wall per run, median of {figures['runs']}", f"{figures['wall_s'] * 1e3:.1f} ms"
    yield "processor time per run", f"{figures['cpu_s'] * 1e3:.1f} ms"
    yield "of it until the engines are up", f"{figures['start_up_cpu_s'] * 1e3:.1f} ms"
    yield "engine steps", f"{figures['engine_steps']:,}"
    yield "processor time per step", f"{figures['cpu_us_per_step']:.0f} µs"
    yield "outside simulated processes, per step", f"{figures['testbed_us_per_step']:.0f} µs"
    yield "virtual/wall", f"{figures['virtual_per_wall']:.1f}"
    yield "peak memory", f"{figures['peak_memory_mib']:.0f} MiB"


def _kernel_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield "events/s with tasks, log and hash", f"{figures['events_per_s']:,.0f}"
    yield "events/s of SimPy alone", f"{figures['bare_simpy_events_per_s']:,.0f}"


def _growth_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for point in figures["points"]:
        yield f"{point['requests']:,} requests", f"{point['ms_per_request']:.2f} ms/request"
    yield "peak memory", f"{figures['points'][-1]['peak_memory_mib']:.0f} MiB"


def _engine_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for point in figures["points"]:
        name = "{0}P{0}D".format(point["producers"])
        yield f"{name}, without the quiet phase", f"{point['ms_per_producer']:.0f} ms/producer"
        yield f"{name}, of the quiet phase", f"{point['quiet_ms_per_way']:.1f} ms/way"


def _prompt_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for point in figures["points"]:
        name = f"prompts of {point['prompt_tokens']:,} tokens"
        yield name, f"{point['ms_per_request']:.1f} ms/request"
        if "us_per_token" in point:
            yield "  each further token", f"{point['us_per_token']:.2f} µs"


def _decode_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield "a step of eight running requests", f"{figures['us_per_step_of_eight']:.0f} µs"
    outside_us = figures["testbed_us_per_step_of_eight"]
    yield "of it outside simulated processes, wall", f"{outside_us:.0f} µs"


def _timeout_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for connector, of_connector in figures.items():
        yield f"{connector}: virtual/wall", f"{of_connector['virtual_per_wall']:,.0f}"
        yield f"{connector}: processor time", f"{of_connector['cpu_s']:.2f} s"


def _compare_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield "of each backend:", "events/s, virtual/wall, in order"
    for size in figures["sizes"]:
        for name, found in size["backends"].items():
            yield f"{size['pairs']:,} pairs, {name}", _compared(found)
    for name, reason in figures["left_out"].items():
        yield f"{name}: {reason}", ""


def _compared(found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return str(found["failed"])
    speed = f"{found['events_per_s']:,.0f}, {found['virtual_per_wall']:.2f}"
    return f"{speed}, {found['in_order']:.0%}"


def _idle_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    yield f"one of {figures['empty_steps']:,} empty steps", f"{figures['us_per_empty_step']:.1f} µs"
    yield "virtual/wall", f"{figures['virtual_per_wall']:.1f}"


def _connector_rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for model, of_model in figures["models"].items():
        yield f"{model}, for each request:", " / ".join(of_model)
        for key, (what, scale, unit) in _COSTS.items():
            values = (of_connector[key] / scale for of_connector in of_model.values())
            yield f"  {what}", " / ".join(f"{value:,.1f}" for value in values) + unit


_COSTS = {
    "planning_us": ("time to plan its reads", 1, " µs"),
    "posting_us": ("time to post them", 1, " µs"),
    "rest_us": ("time for all else", 1, " µs"),
    "load_us": ("virtual time from allocation to the first pass", 1e3, " ms"),
    "added_us": ("of it beyond upstream's", 1e3, " ms"),
    "messages": ("messages between engines", 1, ""),
    "message_bytes": ("bytes in them", 1, " B"),
    "work_requests": ("work requests", 1, ""),
    "read_bytes": ("bytes read", 1024, " KiB"),
    "held_bytes": ("memory while its blocks are held, on the producer", 1, " B"),
}

_ROWS = {
    STANDARD: _run_rows,
    HYBRID: _run_rows,
    FAULTED: _run_rows,
    FAULTED_GLM: _run_rows,
    KERNEL: _kernel_rows,
    COMPARE: _compare_rows,
    GROWTH: _growth_rows,
    GROWTH_ENGINES: _engine_rows,
    GROWTH_PROMPTS: _prompt_rows,
    DECODE: _decode_rows,
    IDLE: _idle_rows,
    TIMEOUTS: _timeout_rows,
    CONNECTORS: _connector_rows,
    CONNECTORS_LONG: _connector_rows,
    TRACE: _run_rows,
    TRACE_HOUR: _run_rows,
}
