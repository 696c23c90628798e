"""``faultlab doctor --hardware``: what this machine lacks for tests on real GPUs and NICs."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from faults.cli.outcome import ExitCode, Outcome
from faults.cli.tables import print_plain, print_table
from hw_tests.preflight import Finding, Host, examine
from hw_tests.preflight.peers import serve
from sim.errors import UsageError

_UNVERIFIED = "unverified on hardware: these checks have not seen a node with GPUs yet"
_NO_PEER = "no --peer was given: other machines were not looked at"


def preflight(peers: Sequence[str]) -> Outcome:
    """Examine this machine; exit code 0 when nothing is missing, 2 otherwise."""
    findings = examine(Host(), peers)
    ready = all(finding.ok for finding in findings)
    return Outcome(
        document={
            "hardware": {"ready": ready, "missing": [f.name for f in findings if not f.ok]},
            "checks": [asdict(finding) for finding in findings],
            "notes": [_UNVERIFIED] if peers else [_UNVERIFIED, _NO_PEER],
        },
        render=partial(_render, findings, bool(peers)),
        exit_code=ExitCode.OK if ready else ExitCode.BAD_USAGE,
    )


def answer_peers(port: int) -> None:
    """Tell whoever connects to ``port`` what is installed here, until interrupted.

    Raises:
        UsageError: the port cannot be had.
    """
    try:
        listener = socket.create_server(("", port))
    except OSError as error:
        raise UsageError(f"--serve {port}: {error}; name a port that is free") from None
    with listener:
        serve(Host(), listener)


def _render(findings: Sequence[Finding], asked_peers: bool, console: Console) -> None:
    table = Table("check", "state", "found", "needed", title="faultlab doctor --hardware")
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[red]missing[/]"
        table.add_row(finding.name, mark, escape(finding.found), escape(finding.needed))
    print_table(console, table)
    missing = [finding for finding in findings if not finding.ok]
    for finding in missing:
        print_plain(console, f"\n{finding.name}: {finding.remedy}")
    names = ", ".join(finding.name for finding in missing)
    verdict = f"not ready, {len(missing)} missing: {names}" if missing else "ready"
    print_plain(console, f"\nhardware tests: {verdict}")
    print_plain(console, _UNVERIFIED)
    if not asked_peers:
        print_plain(console, _NO_PEER)
