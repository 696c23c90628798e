"""Every act on an engine under load, and what a run notices of engines that take it badly."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from load_runs import checks, command, run_load

from hw_tests.load.acts import ACTS

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("act", list(ACTS))
def test_engines_that_behave_pass_every_act(act: str, tmp_path: Path) -> None:
    """Without --exact, too, and whatever is lost meanwhile; requests come so slowly that some are
    served before, also where others take the processors."""
    code, found = run_load(tmp_path, "--act", act, "--exact", "--time-scale", "8")
    assert (code, found["passed"]) == (0, True), found
    engine, _, done = act.rpartition("-")
    name = f"{engine or 'prefill'} engine {done} under load"
    assert [phase["name"] for phase in found["phases"]][2:] == [name]
    other = "prefill" if engine else "decode"
    needed = {"errors are reported, in time", "blocks come back", f"the {other} engine lives"}
    needed.add("requests meet the engine that is away")
    assert needed <= checks(found["phases"][2], passed=True)


@pytest.mark.parametrize(
    ("act", "defect", "red"),
    [
        ("killed", "leaks", "blocks come back"),
        ("killed", "lies", "answers are the control's"),
        ("killed", "dies", "the decode engine lives"),
        ("decode-killed", "keeps", "blocks come back"),
    ],
)
def test_an_engine_that_cannot_lose_the_other_is_noticed(
    act: str, defect: str, red: str, tmp_path: Path
) -> None:
    """Each defect by the check that is about it; nothing is red before an engine is killed."""
    code, found = run_load(tmp_path, "--act", act, "--exact", "--time-scale", "4", defect=defect)
    assert code == 1
    assert red in checks(found["phases"][2], passed=False)
    assert all(check["passed"] for phase in found["phases"][:2] for check in phase["checks"])


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With what is done so far: exit code 1, and the deadline is named."""
    code, found = run_load(tmp_path, "--act", "stopped", "--away", "60", "--deadline", "9")
    assert (code, found["stopped"]) == (1, "--deadline: not done within 9 s")
    assert found["phases"][0]["name"] == "undisturbed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_the_command(number: signal.Signals, tmp_path: Path) -> None:
    """Whether it can clean up or not."""
    process = subprocess.Popen(command(tmp_path, "--act", "stopped"), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(started := _children(process.pid)) < 4:
        assert time.monotonic() < deadline, started
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == (130 if number == signal.SIGTERM else -number)
    while any(_runs(pid) for pid in started):
        assert time.monotonic() < deadline, started
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
