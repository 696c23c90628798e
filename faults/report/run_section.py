"""A recorded run, as a page of its own or as a part of a campaign's."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from faults import artifact
from faults.artifact import SCENARIO_FILE, Artifact
from faults.directories import smaller_place
from faults.grouping import group
from faults.report.beside import Beside, beside
from faults.report.focus import Focus, focus_on
from faults.report.latency import latencies, requests_of, throughput
from faults.report.ownership import ownership
from faults.report.page import render
from faults.report.space_time import space_time
from faults.story import tell
from faults.struck import fault_sentences
from faults.wording import replay_line, what_runs
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.oracles.words import block_list
from sim.request_ids import leg_of
from sim.scenario import Scenario, dumps, load
from sim.units import ns_to_seconds

_FINDINGS_SHOWN = 6
_OTHER_SCENARIO = (
    "the scenario is not quite the one that ran: it was edited, or another version of faultlab "
    "wrote it, so it is not replayed as it is"
)


@dataclass(frozen=True)
class WrongBytes:
    """Where wrong bytes were read, and what was there."""

    where: str
    request: str
    layers: str
    blocks: str
    tokens: str
    found: str
    source: str


@dataclass(frozen=True)
class Drawings:
    """``left_out`` happenings did not fit into the space-time diagram."""

    space_time: Markup
    left_out: int
    ownership: Markup
    latencies: Markup
    throughput: str
    beside: Beside | None


@dataclass(frozen=True)
class RunSection:
    """All that is shown of one run; ``drawings`` is None where there are enough already."""

    name: str
    title: str
    signature: list[str]
    facts: list[tuple[str, str]]
    versions: dict[str, str]
    findings: list[tuple[str, str]]
    more_findings: int
    wrong: list[WrongBytes]
    story: list[tuple[str, str]]
    scenario: str
    scenario_note: str
    replay: str
    drawings: Drawings | None


def run_section(
    directory: Path, *, drawn: bool = True, fault_free: Sequence[Record] | None = None
) -> RunSection:
    """What the artifact in ``directory`` says, beside the records of the same run without faults.

    Raises:
        UsageError: there is none, it was edited, or its scenario cannot be read here.
    """
    directory = artifact.find(directory)
    recorded = artifact.read_outcome(directory)
    scenario = load(directory / SCENARIO_FILE)
    records = artifact.read_records(directory, recorded)
    focus = focus_on(records, recorded.violations)
    findings = [(found.oracle, found.sentence) for found in group(recorded.violations)]
    is_recorded = artifact.is_of(recorded, scenario, directory)
    small, note = _smallest(directory, scenario, recorded)
    return RunSection(
        name=directory.name,
        title=what_runs(scenario),
        signature=recorded.signature,
        facts=_facts(scenario, recorded, records, is_recorded=is_recorded),
        versions=recorded.versions,
        findings=findings[:_FINDINGS_SHOWN],
        more_findings=max(len(findings) - _FINDINGS_SHOWN, 0),
        wrong=wrong_bytes(recorded.violations),
        story=[
            (f"{ns_to_seconds(moment.time_ns):.6f} s", moment.text)
            for moment in tell(records, recorded.violations)
        ],
        scenario=small,
        scenario_note=note,
        replay=replay_line(directory),
        drawings=_drawings(records, focus, fault_free) if drawn else None,
    )


def run_page(directory: Path, fault_free: Sequence[Record] | None = None) -> str:
    """A page about the run in ``directory``; arguments and UsageError as of ``run_section``."""
    return render("run.html", run=run_section(directory, fault_free=fault_free))


def wrong_bytes(violations: Sequence[Violation]) -> list[WrongBytes]:
    """A row for each finding of wrong bytes that says how far it reaches."""
    found = []
    for finding in group(violations):
        violation = finding.violations[0]
        extent = violation.evidence.get("extent")
        if not extent:
            continue
        ranks = ", ".join(map(str, extent["ranks"]))
        layers = extent["layers"]
        sources = extent["source_block_ids"]
        found.append(
            WrongBytes(
                where=f"{violation.node} rank {ranks}",
                request=leg_of(violation.request_id or ""),
                layers=layers[0] if len(layers) == 1 else f"{len(layers)} from {layers[0]}",
                blocks=block_list(extent["block_ids"]),
                tokens="-".join(str(token) for token in dict.fromkeys(extent["tokens"])),
                found=", ".join(
                    [*(f"bytes of {owner}" for owner in extent["owners"]), *extent["found"]]
                ),
                source=f"{block_list(sources)} of {', '.join(extent['source_nodes'])}"
                if sources
                else "",
            )
        )
    return found


def _facts(
    scenario: Scenario, recorded: Artifact, records: Sequence[Record], *, is_recorded: bool
) -> list[tuple[str, str]]:
    given = recorded.command_line[1:]  # none where a campaign's worker ran it
    if is_recorded:
        kinds = [fault["kind"] for fault in scenario.faults]
        notes = [("fault", sentence) for sentence in fault_sentences(kinds, records)]
    else:
        notes = [("note", _OTHER_SCENARIO)]
    return [
        *([("command", shlex.join(["faultlab", *given]))] if given else []),
        ("seed", str(scenario.seed)),
        ("verdict", recorded.verdict),
        ("event hash", recorded.event_hash),
        ("sources under test", recorded.guest_digest),
        *notes,
    ]


def _smallest(directory: Path, scenario: Scenario, recorded: Artifact) -> tuple[str, str]:
    """The scenario as YAML, after faultlab shrink if that has been here, and which one it is."""
    smaller = artifact.read_smaller(directory, recorded)
    if smaller is not None:
        return dumps(smaller), f"shrunk, {smaller_place(directory) / SCENARIO_FILE}"
    return dumps(scenario), f"{directory / SCENARIO_FILE}; faultlab shrink looks for a smaller one"


def _drawings(
    records: Sequence[Record], focus: Focus, fault_free: Sequence[Record] | None
) -> Drawings:
    diagram, left_out = space_time(records, focus)
    requests = requests_of(records)
    until_ns = records[-1].time_ns if records else 0
    return Drawings(
        space_time=diagram,
        left_out=left_out,
        ownership=ownership(records, focus),
        latencies=latencies(requests, until_ns),
        throughput=throughput(requests),
        beside=None if fault_free is None else beside(requests, requests_of(fault_free)),
    )
