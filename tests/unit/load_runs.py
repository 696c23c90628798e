"""A run of ``python -m hw_tests.load`` against four processes that speak vLLM's HTTP."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from load_phases import write_trace

from hw_tests.process.launcher import free_port

SERVE = Path(__file__).with_name("fake_serve.py")
Document = dict[str, Any]


@functools.cache
def engine_log(role: str, model: str = "kimi-linear") -> str:
    """What the connector has logged when two simulated ranks of that role started, as vLLM writes
    lines."""
    # vLLM is slow to load, and most tests of what is served need none.
    from faults.running import run
    from sim.engine.options import EngineOptions
    from sim.scenario import Scenario, UniformWorkload
    from tests.connector_events import logged

    workload = UniformWorkload(requests=1, prompt_tokens=(64, 64), output_tokens=(2, 2))
    engine = EngineOptions(tp_size=2, executor="multi-process")
    with logged(logging.INFO) as events:
        run(Scenario(model=model, connector="hybrid", workload=workload, engine=engine))
    return "\n".join(
        f"(Worker_TP{event.get('rank', 0)} pid=7) INFO 11-30 08:00:00 [logs.py:52] "
        + json.dumps(event, sort_keys=True)
        for event in events
        if event["role"] == role
    )


def command(out: Path, *more: str, defect: str = "") -> list[str]:
    """Of a run whose servers are fakes on free ports, and say what simulated engines have said. One
    with a defect takes half a second before it reads, so that reads are due whenever the other
    engine is killed."""
    words = [
        sys.executable,
        "-m",
        "hw_tests.load",
        "--trace",
        str(write_trace(out / "trace.jsonl")),
    ]
    says = {}
    for name, role in (("prefill", "producer"), ("decode", "consumer")):
        (out / f"{role}.txt").write_text(engine_log(role))
        says[name] = ["--says", str(out / f"{role}.txt")]
    for name, flags in (
        ("prefill", [*says["prefill"], "--defect", defect]),
        ("decode", [*says["decode"], "--defect", defect, *(["--step", "0.5"] if defect else [])]),
        ("control", []),
    ):
        port = free_port()
        serve = [sys.executable, str(SERVE), "--port", str(port), "--verify_reads", "all", *flags]
        words += [f"--{name}", shlex.join(serve), f"--{name}-url", f"http://127.0.0.1:{port}"]
    limits = ["--requests", "24", "--max-prompt-tokens", "600", "--deadline", "100"]
    waits = ["--away", "0.3", "--answer-within", "20", "--settle-within", "5"]
    words += ["--router-port", str(free_port()), *limits, *waits, "--start-within", "60"]
    return [*words, "--out", str(out / "load.json"), *more]


def run_load(out: Path, *more: str, defect: str = "") -> tuple[int, Document]:
    """The exit code and the document."""
    done = subprocess.run(
        command(out, *more, defect=defect), capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode in (0, 1, 3), done.stderr
    found: Document = json.loads((out / "load.json").read_text())
    return done.returncode, found


def assert_sealed(out: Path) -> None:
    """The hashes beside a report are those of its files and name its page and itself; a page that
    was changed is noticed."""
    check = ["sha256sum", "--check", "--quiet", out.with_suffix(".sha256").name]
    assert subprocess.run(check, cwd=out.parent, check=False).returncode == 0
    page = out.with_suffix(".html")
    said = page.read_text()
    assert hashlib.sha256(out.read_bytes()).hexdigest() in said
    for digest in json.loads(out.read_text())["files"].values():
        assert digest in said
    page.write_text(f"{said} ")
    assert subprocess.run(check, cwd=out.parent, capture_output=True, check=False).returncode == 1
    page.write_text(said)


def checks(phase: Document, *, passed: bool) -> set[str]:
    """The names of those that passed, or did not."""
    return {check["name"] for check in phase["checks"] if check["passed"] == passed}
