from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from in_process_worker import InProcessWorker

from faults import api, running
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.running import FaultedRun
from sim.scenario import Scenario

RUN = [
    *("run", "--requests", "3", "--set", "length_scale=0.02", "--set", "max_output_tokens=3"),
    *("--set", "kv_load_failure_policy=recompute", "--set", "extra_config.transfer_timeout=1"),
    *(
        "--set",
        "quiet_phase_s=1",
        "--set",
        "max_virtual_s=5",
        "--fault",
        "send-queue-full",
        "--fault",
        "abort:at_s=50",
    ),
]


def test_a_failing_run_becomes_a_smaller_one_that_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that cannot be posted, in a step after which the scheduler takes tokens back; the
    other fault, and the other requests, are not needed. The test that comes with it fails."""
    big, small = tmp_path / "big", tmp_path / "small"
    assert dispatch.run([*RUN, "--out", str(big), "--json"]) == ExitCode.VIOLATION
    signature = {v["oracle"] for v in json.loads(capsys.readouterr().out)["violations"]}
    arguments = ["shrink", str(big), "--max-runs", "12", "--out", str(small), "--json"]
    assert dispatch.run(arguments) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert set(document["signature"]) == signature
    assert document["runs"] <= 12
    assert (document["before"]["faults"], document["after"]["faults"]) == (2, 1)
    assert document["after"]["requests"] == 1
    assert (small / "report.html").is_file()
    assert dispatch.run(["replay", str(small), "--json"]) == ExitCode.VIOLATION
    assert_explained(small, signature, capsys)
    test = runpy.run_path(str(small / "test_repro.py"))["test_nothing_is_broken"]
    monkeypatch.setattr(api, "_WORKER", InProcessWorker())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="how it came about"):
        test()


def assert_explained(run: Path, signature: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is left is explained as a run is, and that it could be smaller is not kept quiet."""
    capsys.readouterr()
    assert dispatch.run(["shrink", str(run), "--max-runs", "2"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "stopped at the limit of 2 runs (--max-runs)" in shown
    for words in (*signature, "violation: ", "how it came about", "report.html"):
        assert words in shown
    small = f"{run}-small"
    assert shown.splitlines()[-3:] == [
        f"for pytest: {small}/test_repro.py",
        f"for a tracker: faultlab issue {small}",
        f"faultlab replay {small}",
    ]


def test_a_run_that_passed_cannot_be_shrunk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to keep."""
    passing = ["run", "--requests", "2", "--set", "length_scale=0.02", "--set", "quiet_phase_s=1"]
    assert dispatch.run([*passing, "--out", str(tmp_path / "p")]) == ExitCode.OK
    assert dispatch.run(["shrink", str(tmp_path / "p")]) == ExitCode.BAD_USAGE
    assert "broke no rule" in capsys.readouterr().err.replace("\n", " ")


def test_what_is_interrupted_leaves_the_smallest_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an artifact like any other, which fails as recorded and can be shrunk in turn."""
    big, small, runs = tmp_path / "big", tmp_path / "small", 0
    assert dispatch.run([*RUN, "--out", str(big)]) == ExitCode.VIOLATION

    def run(scenario: Scenario, **options: Any) -> FaultedRun:
        nonlocal runs
        runs += 1
        if runs > 3:
            raise KeyboardInterrupt
        return original(scenario, **options)

    original = running.run
    monkeypatch.setattr(running, "run", run)
    assert dispatch.run(["shrink", str(big), "--out", str(small)]) == ExitCode.INTERRUPTED
    assert f"to go on from here: faultlab shrink {small}" in capsys.readouterr().out
    monkeypatch.setattr(running, "run", original)
    assert dispatch.run(["replay", str(small)]) == ExitCode.VIOLATION
    assert dispatch.run(["shrink", str(small), "--max-runs", "1"]) == ExitCode.OK


def test_the_late_hand_off_becomes_as_small_as_its_engines_allow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pool shrinks with what fills it, down to what an engine starts with."""
    late = tmp_path / "late"
    assert dispatch.run(["run", "late-hand-off", "--out", str(late)]) == ExitCode.VIOLATION
    capsys.readouterr()
    assert dispatch.run(["shrink", str(late), "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["runs"] < 60
    assert document["before"] | {"requests": 3, "tokens": 293, "blocks": 17} == document["after"]
