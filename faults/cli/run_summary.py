"""The summary of a run for people: what ran, what came of it, what was found and how."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich import filesize
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from faults import artifact
from faults.artifact import REPORT_FILE
from faults.grouping import FindingGroup, group
from faults.plural import counted
from faults.story import Moment, aftermaths, tell
from faults.struck import fault_names, fault_sentences
from faults.wording import replay_line, shrink_line, what_runs
from sim.acceptance import Acceptance
from sim.engine.connectors import CONNECTORS
from sim.errors import UsageError
from sim.hints import nearest
from sim.kernel.log import Record
from sim.outcome import Outcome, RunResult
from sim.scenario import Scenario
from sim.units import ns_to_seconds

_NO_PEER = "does not embed a peer zmq_address"  # MoRIIO's words
_SHOWN_PER_ORACLE = 3
_SHOWN_OF_TRACEBACK = 8
_SHOWN_TRANSFERS = 3


def render_run(console: Console, scenario: Scenario, result: RunResult, saved: Path | None) -> None:
    """Everything; after a violation that was saved, the last line is the command to replay it."""
    _render_facts(console, scenario, result)
    _render_aftermaths(console, [f["kind"] for f in scenario.faults], result)
    render_findings(console, result)
    if saved is not None:
        is_broken = bool(result.outcome.violations)
        render_saved(console, saved, [f"smaller: {shrink_line(saved)}"] if is_broken else [])


def render_findings(console: Console, result: RunResult) -> None:
    """What broke which rule, and how it came about; nothing after a run that broke none."""
    if result.outcome.violations:
        _render_violations(console, result.outcome)
        _render_story(console, tell(result.log.records, result.outcome.violations))


def render_kept_story(console: Console, directory: str | None) -> None:
    """How the run in ``directory`` came about; nothing if none was kept, or it cannot be read,
    which is told to whoever replays it."""
    if directory is None:
        return
    try:
        recorded = artifact.read_outcome(Path(directory))
        records = artifact.read_records(Path(directory), recorded)
    except UsageError:
        return
    _render_story(console, tell(records, recorded.violations))


def render_saved(console: Console, directory: Path, further: Iterable[str] = ()) -> None:
    """Where a run was written, what to open, what ``further`` can be done with it, a line each, and
    as the last line what runs it again."""
    print_plain(console, f"\nwritten to {directory}")
    if (directory / REPORT_FILE).exists():
        print_plain(console, f"in a browser: {directory / REPORT_FILE}")
    for line in further:
        print_plain(console, line)
    print_plain(console, replay_line(directory))


def print_plain(console: Console, text: str) -> None:
    """Print without wrapping or markup, so that a command can be copied as it stands."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def speed(outcome: Outcome) -> str:
    """Virtual against wall time."""
    wall_s = max(outcome.wall_s, 1e-9)
    return (
        f"{outcome.virtual_s:.3f} s virtual in {outcome.wall_s:.2f} s wall "
        f"({outcome.guest_s:.2f} s of it in vLLM and the connector): "
        f"{outcome.virtual_s / wall_s:.1f} × real time, {1 / wall_s:.2f} runs/s"
    )


def requests_line(outcome: Outcome) -> str:
    """Requests by outcome."""
    counts = {k: v for k, v in outcome.requests.items() if k != "total" and v}
    return f"{outcome.requests['total']}: " + ", ".join(f"{v} {k}" for k, v in counts.items())


def drafts_line(acceptance: Acceptance) -> str:
    """How many drafts were accepted, in all and by place in a step."""
    steps = max(acceptance.steps, 1)
    by_place = ", ".join(f"{count / steps:.0%}" for count in acceptance.accepted_at)
    return (
        f"{acceptance.accepted} of {acceptance.drafts} accepted ({acceptance.rate:.1%}) "
        f"in {counted(acceptance.steps, 'step')}, {acceptance.accepted_per_step:.2f} a step; "
        f"by place in a step: {by_place}"
    )


def hand_off_line(acceptance: Acceptance) -> str | None:
    """What a hand-off cost the drafter: the first steps, in which no draft was right."""
    spoilt = 0
    for step in acceptance.first_steps:
        if step.accepted:
            break
        spoilt += 1
    if not spoilt:
        return None
    steps = "first step accepts" if spoilt == 1 else f"first {spoilt} steps accept"
    return (
        f"after the hand-off a request's {steps} no draft, as the drafter begins without the "
        "producer's last row: that costs time, and never a wrong token"
    )


def transfers_line(outcome: Outcome) -> str:
    """What landed in the blocks of consumers: of each request if they are few."""
    each = outcome.transfers
    if len(each) > _SHOWN_TRANSFERS:
        blocks = [one.blocks for one in each.values()]
        total = sum(one.bytes for one in each.values())
        return (
            f"{filesize.decimal(total)} into blocks of {len(each)} requests, "
            f"{_from_to(min(blocks), max(blocks))} each"
        )
    return "; ".join(
        f"{request}: {filesize.decimal(one.bytes)} into {counted(one.blocks, 'block')}"
        for request, one in each.items()
    )


def _from_to(least: int, most: int) -> str:
    return counted(least, "block") if least == most else f"{least} to {most} blocks"


def notes_line(outcome: Outcome) -> str:
    """What oracles counted and did not find wrong, as far as there was any. Where no rule was
    broken, stale reads were of no use to anybody."""
    counted = ", ".join(
        f"{name.replace('_', ' ')} {count}" for name, count in outcome.notes.items() if count
    )
    return f"harmless: {counted}" if counted and outcome.verdict == "pass" else counted


def not_asked_line(scenario: Scenario, outcome: Outcome) -> str | None:
    """Which settings no connector looked for, such as misspelt ones, and what they look for."""
    asked = outcome.settings_asked_for
    given = [f"extra_config.{k}{nearest(k, asked)}" for k in outcome.settings_not_asked_for]
    if not given:
        return None
    if scenario.topology.colocated:
        return f"{', '.join(given)}; a colocated engine has no connector"
    who = dict.fromkeys((scenario.producer_connector, scenario.connector))
    return f"{', '.join(given)}; {' and '.join(who)} asked for: {', '.join(asked) or 'nothing'}"


def cut_short(scenario: Scenario, outcome: Outcome) -> str | None:
    """What was left out of the run, if anything was."""
    never_sent = outcome.requests.get("never-sent")
    if not never_sent:
        return None
    return (
        f"never sent: {never_sent} of {counted(outcome.requests['total'], 'request')}, as they "
        f"arrive after max_virtual_s, which is {scenario.max_virtual_s:g}"
    )


def mode_hint(scenario: Scenario, records: Iterable[Record]) -> str | None:
    """What to set when an engine died of it that somebody's connector was not told its mode.

    What derives from MoRIIO writes unless it is told otherwise, and the router goes by what
    ``ConnectorKind.writes`` says.
    """
    given = (scenario.connector, scenario.producer_connector)
    if "read_mode" in scenario.extra_config or CONNECTORS.keys() >= set(given):
        return None
    if not any(r.kind == "engine-died" and _NO_PEER in r.fields["reason"] for r in records):
        return None
    settings = shlex.quote(json.dumps(CONNECTORS["moriio"].extra_config))
    return (
        "perhaps no defect: without read_mode, what derives from MoRIIO is in WRITE mode, and the "
        f"router in READ mode; try --extra-config {settings} (docs/connectors.md)"
    )


def verdict_of(outcome: Outcome) -> Text:
    """The verdict, and the rules that were broken."""
    match outcome.verdict:
        case "pass":
            return Text("pass: no rule was broken", "green")
        case "incomplete":
            return Text("incomplete: no rule was broken as far as the run went", "bold yellow")
        case _:
            return Text(f"violation: {', '.join(outcome.signature())}", "bold red")


def _render_facts(console: Console, scenario: Scenario, result: RunResult) -> None:
    outcome = result.outcome
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("ran", Text(what_runs(scenario)))
    table.add_row("requests", Text(requests_line(outcome)))
    if outcome.transfers:
        table.add_row("transfers", Text(transfers_line(outcome)))
    for sentence in fault_sentences([f["kind"] for f in scenario.faults], result.log.records):
        table.add_row("fault", Text(sentence))
    if outcome.speculation is not None:
        table.add_row("drafts", Text(drafts_line(outcome.speculation)))
        if hand_off := hand_off_line(outcome.speculation):
            table.add_row("", Text(hand_off))
    table.add_row("time", Text(speed(outcome)))
    table.add_row("events", f"{outcome.events} in {counted(outcome.engine_steps, 'engine step')}")
    table.add_row("seed, hash", f"{outcome.seed}, {outcome.event_hash}")
    if notes := notes_line(outcome):
        table.add_row("notes", Text(notes))
    if not_asked := not_asked_line(scenario, outcome):
        table.add_row("not asked for", Text(not_asked, "yellow"))
    if cut := cut_short(scenario, outcome):
        table.add_row("cut short", Text(cut, "yellow"))
    table.add_row("verdict", verdict_of(outcome))
    if hint := mode_hint(scenario, result.log.records):
        table.add_row("", Text(hint, "yellow"))
    console.print(table)


def _render_violations(console: Console, outcome: Outcome) -> None:
    by_oracle: dict[str, list[FindingGroup]] = {}
    for finding in group(outcome.violations):
        by_oracle.setdefault(finding.oracle, []).append(finding)
    for oracle, findings in by_oracle.items():
        console.print(f"\n[bold red]{oracle}[/]")
        for finding in findings[:_SHOWN_PER_ORACLE]:
            console.print(Padding(Text(finding.sentence), (0, 0, 0, 2)))
            for line in finding.traceback[:_SHOWN_OF_TRACEBACK]:
                console.print(Padding(Text(line, "dim"), (0, 0, 0, 4)))
        if len(findings) > _SHOWN_PER_ORACLE:
            print_plain(console, f"  and {len(findings) - _SHOWN_PER_ORACLE} more like these")


def _render_aftermaths(console: Console, kinds: Sequence[str], result: RunResult) -> None:
    names = fault_names(dict(enumerate(kinds))).values()
    for name, moments in zip(names, aftermaths(len(kinds), result.log.records), strict=True):
        if moments:
            console.print(f"\n[bold]what {name} did[/]")
            render_moments(console, moments)


def _render_story(console: Console, moments: Sequence[Moment]) -> None:
    if moments:
        console.print("\n[bold]how it came about[/]")
        render_moments(console, moments)


def render_moments(console: Console, moments: Sequence[Moment]) -> None:
    """A line each, with its time."""
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for moment in moments:
        table.add_row(f"{ns_to_seconds(moment.time_ns):.6f} s", Text(moment.text))
    console.print(Padding(table, (0, 0, 0, 2)))
