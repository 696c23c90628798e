"""``faultlab doctor``: shows what ``faults.environment`` found out about this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from faults.cli.preflight import answer_peers, preflight
from faults.cli.tables import print_plain, print_table
from faults.environment import CONNECTOR_NOTE, INSTALL_LINES, Diagnosis, Status, examine
from faults.machine import probe
from sim.errors import UsageError

_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "red"}


Hardware = Annotated[
    bool, typer.Option("--hardware", help="Check all that tests on GPUs and real NICs need.")
]
Peers = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="HOST:PORT", help="Another machine; it runs --serve PORT."),
]
Serve = Annotated[
    int | None,
    typer.Option(min=1, max=65535, metavar="PORT", help="Answer --peer of other machines."),
]


def command(
    hardware: Hardware = False,
    peer: Peers = None,
    serve: Serve = None,
    json: JsonFlag = False,
) -> Outcome:
    """Check Python, torch, vLLM, mori and the devices; say what will and will not run here.

    \b
    Examples:
      faultlab doctor
      faultlab doctor --hardware --serve 6300
      faultlab doctor --hardware --peer node2:6300 --json

    Exit code 0 when the simulator can run (with --hardware: the tests on hardware), 2 otherwise.
    """
    if hardware:
        if serve is not None:
            answer_peers(serve)
        return preflight(peer or ())
    if peer or serve is not None:
        raise UsageError("--peer and --serve belong to --hardware; add it")
    diagnosis = examine(probe())
    return Outcome(
        document=_document(diagnosis),
        render=partial(_render, diagnosis),
        exit_code=ExitCode.BAD_USAGE if diagnosis.simulator_obstacles else ExitCode.OK,
    )


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "simulator": _verdict(diagnosis.simulator_obstacles),
        "hardware_tests": _verdict(diagnosis.hardware_obstacles),
        "checks": [asdict(check) for check in diagnosis.checks],
        "install": list(INSTALL_LINES),
        "notes": [CONNECTOR_NOTE],
    }


def _verdict(obstacles: Sequence[str]) -> dict[str, Any]:
    return {"runs": not obstacles, "obstacles": list(obstacles)}


def _render(diagnosis: Diagnosis, console: Console) -> None:
    table = Table("check", "status", "found", "expected", title="faultlab doctor")
    for check in diagnosis.checks:
        status = f"[{_COLOURS[check.status]}]{check.status}[/]"
        table.add_row(check.name, status, check.found, check.expected)
    print_table(console, table)
    _render_verdict(console, "simulator", diagnosis.simulator_obstacles)
    _render_verdict(console, "hardware tests", diagnosis.hardware_obstacles)
    for check in diagnosis.checks:
        if check.remedy is not None:
            print_plain(console, f"\n{check.name}: {check.remedy}")
    print_plain(console, f"\nconnectors: {CONNECTOR_NOTE}")
    if diagnosis.simulator_obstacles:
        print_plain(console, "\nTo install everything on a CPU, in this order:")
        for line in INSTALL_LINES:
            print_plain(console, f"  {line}")


def _render_verdict(console: Console, what: str, obstacles: Sequence[str]) -> None:
    if obstacles:
        print_plain(console, f"{what}: will not run here: {'; '.join(obstacles)}")
    else:
        print_plain(console, f"{what}: will run here")
