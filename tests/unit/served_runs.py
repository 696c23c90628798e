"""Runs of ``python -m hw_tests.cluster --suite load|recall`` on two hosts that are one machine."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from far_hosts import ROOT, make_clients
from load_runs import SERVE, engine_log

from hw_tests.process.launcher import free_port

TWO = ["--way=ssh", "--producer=node1=127.0.0.1", "--consumer=node2=127.0.0.1", "--arm=sim"]


def mark_of(tmp_path: Path) -> str:
    """Of all processes of the run."""
    return f"{tmp_path.name}-{os.getpid()}"


def start(
    tmp_path: Path, suite: str, *more: str, commands: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """``commands``: instead of those of servers that behave."""
    clients = make_clients(tmp_path / "bin")
    environment = {**os.environ, "PATH": f"{clients}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "hw_tests.cluster", *TWO, f"--suite={suite}"]
    words += [f"--out={tmp_path / 'out'}", f"--run={mark_of(tmp_path)}"]
    words += [f"--port=router={free_port()}", "--start-within=60"]
    for name, role in (("prefill", "producer"), ("decode", "consumer"), ("control", "")):
        port = free_port()
        serve = [sys.executable, str(SERVE), "--port", str(port), "--verify_reads", "all"]
        if role:
            (tmp_path / f"{role}.txt").write_text(engine_log(role))
            serve += ["--says", str(tmp_path / f"{role}.txt")]
        words += [f"--port={name}={port}"]
        words += [f"--{name}", (commands or {}).get(name, shlex.join(serve))]
    return subprocess.Popen(
        [*words, *more], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )


def port_of(run: subprocess.Popen[str], name: str) -> str:
    """Of a server of the run."""
    assert isinstance(run.args, list)
    (port,) = [word.rpartition("=")[2] for word in run.args if f"--port={name}=" in str(word)]
    return str(port)


def report_of(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "out/report.json").read_text())
    return document
