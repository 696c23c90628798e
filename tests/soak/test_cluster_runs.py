"""Whole runs on two hosts that are processes of this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import served_runs
from far_hosts import ROOT, make_clients, marked, until, until_none
from load_phases import write_trace

from hw_tests.outcome import NO_RECALL, ONE_HOST

pytestmark = pytest.mark.soak
TWO = ["--producer=node1=127.0.0.2", "--consumer=node2=127.0.0.3", "--arm=sim"]


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Everything it starts has ``tmp_path`` as its mark."""
    clients = make_clients(tmp_path / "bin")
    environment = {**os.environ, "PATH": f"{clients}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment["SLURM_JOB_ID"] = "1"  # as inside an allocation
    command = [sys.executable, "-m", "hw_tests.cluster", *TWO, f"--out={tmp_path / 'out'}"]
    command += [f"--run={tmp_path.name}-{os.getpid()}", *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )


def heed_ctrl_c() -> None:
    """What a shell starts in the background ignores it, and so would all that is started here."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
    assert (document["counts"]["failed"], document["counts"]["not run"]) == (0, 1)
    passed = [test["name"] for test in document["tests"] if test["how"] == "passed"]
    for name in ("a_read_fills", "killed_before", "garbage", "engine_descriptor"):
        assert any(name in each for each in passed), name
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


@pytest.mark.parametrize(
    ("suite", "more"),
    [
        ("load", ["--act", "killed", "--away", "1", "--settle-within", "5", "--time-scale", "8"]),
        ("recall", ["--words", "120", "--needles", "2", "--seeds", "1", "--same-words"]),
    ],
)
def test_a_model_is_served_on_two_hosts(suite: str, more: list[str], tmp_path: Path) -> None:
    """Servers that speak vLLM's HTTP: prefill is on one host and decode on the other; all that they
    have written is here, and nothing of them is left."""
    write_trace(tmp_path / "trace.jsonl")
    trace = ["--trace", str(tmp_path / "trace.jsonl")] if suite == "load" else []
    with served_runs.start(tmp_path, suite, "--", *trace, *more) as run:
        assert run.stdout is not None
        said = run.stdout.read()
    assert run.returncode == 0, said
    document = report_of(tmp_path)
    assert document["counts"]["failed"] == document["counts"]["not run"] == 0
    names = [test["name"] for test in document["tests"]]
    assert any(name.startswith(f"{suite}: ") for name in names)
    assert {"registered caches", "decode serves to the end"} <= set(names)
    assert document["registered"]["passed"]
    assert document["caveats"] == [ONE_HOST, *([NO_RECALL] if suite == "recall" else [])]
    assert f"pass, {ONE_HOST}" in said
    printed = re.findall(r"(\S+\.(?:json|html|sha256))\b", said)
    assert len(printed) >= 3
    assert [path for path in printed if not list(tmp_path.rglob(Path(path).name))] == []
    assert [path for path in printed if "/" in path and not Path(path).exists()] == []
    files = set(document["files"])
    prefill = "load/prefill.log" if suite == "load" else "prefill.log"
    assert {f"producer-node1/{prefill}", "consumer-node2/decode.log"} <= files
    assert {f"producer-node1/{suite}/{suite}.{end}" for end in ("json", "html")} <= files
    assert marked(served_runs.mark_of(tmp_path)) == {}


@pytest.mark.parametrize(
    ("is_whole", "code", "said"),
    [
        (False, 1, "on node2: decode has ended with exit code -9"),
        (True, 2, "INCOMPLETE: the connection to node2 is gone"),
    ],
    ids=["engine", "host"],
)
def test_a_second_host_that_is_lost_is_told(
    is_whole: bool, code: int, said: str, tmp_path: Path
) -> None:
    """Its decode engine alone, or with everything there, when the client has begun: the client ends
    with red checks, the run ends with it, and nothing is left."""
    mark = served_runs.mark_of(tmp_path)
    write_trace(tmp_path / "trace.jsonl")
    client = ["--trace", str(tmp_path / "trace.jsonl")]
    client += ["--settle-within", "5", "--answer-within", "20"]
    with served_runs.start(tmp_path, "load", "--start-within=10", "--", *client) as run:
        until(lambda: _pids(mark, "hw_tests.router"), lambda: marked(mark))
        (decode,) = _pids(mark, f"fake_serve.py --port {served_runs.port_of(run, 'decode')}")
        agent = int(Path(f"/proc/{decode}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(agent if is_whole else decode, signal.SIGKILL)
        assert run.wait(300) == code
    document = report_of(tmp_path)
    reasons = [test["reason"] for test in document["tests"] if test["how"] == "failed"]
    assert said in "".join([document["verdict"], *reasons])
    until_none(mark)


def _pids(mark: str, words: str) -> list[int]:
    """Of processes with these words, without those that only start them."""
    starters = ("-m hw_tests.load", "cluster.supervisor")
    return [
        pid
        for pid, line in marked(mark).items()
        if words in line and not any(word in line for word in starters)
    ]
