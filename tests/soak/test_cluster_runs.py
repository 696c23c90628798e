"""Whole runs on two hosts that are processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from far_hosts import ROOT, make_clients, marked, until, until_none

pytestmark = pytest.mark.soak
TWO = ["--producer=node1=127.0.0.2", "--consumer=node2=127.0.0.3", "--arm=sim"]


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Everything it starts has ``tmp_path`` as its mark."""
    clients = make_clients(tmp_path / "bin")
    environment = {**os.environ, "PATH": f"{clients}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "hw_tests.cluster", *TWO, f"--out={tmp_path / 'out'}"]
    command += [f"--run={tmp_path.name}-{os.getpid()}", *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def report_of(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "out/report.json").read_text())
    return document


def test_a_run_passes_and_leaves_a_report_and_no_process(tmp_path: Path) -> None:
    """Cases on the host, reads between the two, a kill on either, and garbage from here."""
    chosen = "a_read_fills or killed_before or garbage or late_messages or engine_descriptor"
    with start(tmp_path, "--way=srun", "--", "-k", chosen) as run:
        assert run.stdout is not None
        said = run.stdout.read()
    assert run.returncode == 0, said
    document = report_of(tmp_path)
    assert document["passed"]
    assert document["counts"] == {"passed": 7, "failed": 0, "not run": 1}
    reasons = [test["reason"] for test in document["tests"] if test["how"] == "not run"]
    assert reasons == ["its proxy can stand between engines of its own machine only"]
    logs = {name.partition("/")[0] for name in document["files"] if name.endswith(".log")}
    assert logs == {"producer-node1", "consumer-node2"}
    events = "".join(log.read_text() for log in (tmp_path / "out/consumer-node2").glob("*.log"))
    assert '"load-failed"' in events
    assert marked(f"{tmp_path.name}-{os.getpid()}") == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_says_so_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    """While an engine starts."""
    mark = f"{tmp_path.name}-{os.getpid()}"
    with start(tmp_path, "--way=ssh", "--suite=pair", "--", "-k", "a_read_fills") as run:
        until(lambda: any("forkserver" in line for line in marked(mark).values()), lambda: "none")
        run.send_signal(number)
        assert run.wait(60) == 130
    assert "interrupted" in report_of(tmp_path)["verdict"]
    assert marked(mark) == {}


def test_a_side_that_dies_ends_the_run(tmp_path: Path) -> None:
    """All tests that need it fail at once, with what is known; the other side ends with the run."""
    mark = f"{tmp_path.name}-{os.getpid()}"
    with start(tmp_path, "--way=ssh", "--suite=pair", "--", "-k", "killed_before") as run:
        until(lambda: any("forkserver" in line for line in marked(mark).values()), lambda: "none")
        folder = tmp_path / "out/producer-node1"
        until(folder.is_dir, lambda: folder)
        agents = sorted(pid for pid, line in marked(mark).items() if "cluster.agent" in line)
        os.kill(agents[-1], signal.SIGKILL)
        assert run.wait(300) == 1
    document = report_of(tmp_path)
    assert document["counts"]["passed"] == 0
    assert any("the connection to node" in test["reason"] for test in document["tests"])
    until_none(mark)
