"""How long commands end when somebody else than the keyboard ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.cli import dispatch, mutants
from faults.cli.outcome import ExitCode
from faults.mutants.hunt import Hunt

WORKER = """
import json, os, sys, time
failure = {"group": "wrong-bytes/consumer", "oracle": "wrong-bytes", "detail": "a canary sang"}
for line in sys.stdin:
    job = json.loads(line)
    if job["overlay"] and "SILENT" not in os.environ:
        print(json.dumps({"seed": 0, "status": "failed", "failures": [failure]}), flush=True)
    elif job["seed"] < 2 and not job["overlay"]:
        print(json.dumps({"seed": job["seed"], "status": "passed"}), flush=True)
    else:
        open("pid", "w").write(str(os.getpid()))
        os.rename("pid", "worker")
        time.sleep(600)
"""
PROGRAM = """
import sys
from functools import partial
from faults.campaign import pool
from faults.cli import compare
from faults.cli.app import main
pool.Pool = compare.Pool = partial(pool.Pool, command=[sys.executable, "worker.py"])
sys.exit(main())
"""
DISCARDING = """
import os, signal, sys, time
from faults.cli import mutants
from faults.cli.app import main
from faults.mutants.hunt import Hunt

class Held:
    def __del__(self):
        signal.raise_signal(int(os.environ["NUMBER"]))
        time.sleep(0)

def hunt_all(*_):
    yield Hunt(name="no-fence", breaks="all", place="here", runs=1, seed=3, groups=["leak"])
    Held()
    time.sleep(20)

mutants.hunt_all = hunt_all
sys.exit(main())
"""
CAMPAIGN = ["campaign", "--seeds", "5"]
COMPARE = ["compare", "--seeds", "5", "--connector", "moriio", "--connector", "hybrid"]


def ended(
    directory: Path, arguments: list[str], number: int, before: Callable[[], object]
) -> tuple[int, str, str]:
    """A command gets a signal when two seeds are done, and a worker is at the third."""
    (directory / "worker.py").write_text(WORKER)
    (directory / "program.py").write_text(PROGRAM)
    pipe, root = subprocess.PIPE, str(Path(__file__).parents[2])
    command = [sys.executable, "program.py", *arguments, "--jobs", "1", "--out", "out"]
    environ = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, cwd=directory, env=environ, stdout=pipe, stderr=pipe, text=True,
                          preexec_fn=before) as process:  # fmt: skip
        while not (directory / "worker").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, err


def in_the_foreground() -> None:
    """As a shell starts it, whatever these tests were started by, such as nohup."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def in_the_background() -> None:
    """As a script starts what it does not wait for."""
    in_the_foreground()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("before", [in_the_foreground, in_the_background])
@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [(CAMPAIGN, signal.SIGTERM, 143), (CAMPAIGN, signal.SIGHUP, 129),
     (COMPARE, signal.SIGTERM, 143)],
)  # fmt: skip
def test_a_signal_leaves_what_there_is_and_no_worker(
    tmp_path: Path,
    arguments: list[str],
    number: int,
    code: int,
    before: Callable[[], object],
) -> None:
    """As Ctrl-C: what was run is summed up and kept, and it is said how to go on."""
    ended_with, out, err = ended(tmp_path, arguments, number, before)
    assert (ended_with, err) == (code, "")
    assert "(interrupted)" in out
    assert "to go on, give the same command again with --resume" in out
    results = list(tmp_path.glob("out/**/results.jsonl"))
    assert len(results[0].read_text().splitlines()) == 2
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "worker").read_text()), 0)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(CAMPAIGN, "not run: 5 seeds, as it was interrupted;"),
     (COMPARE, "not run on both sides: 5 seeds;")],
)  # fmt: skip
def test_ctrl_c_before_the_first_result_is_summed_up_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    """While workers load vLLM or run the canary: the directory is there, to be gone on with."""
    monkeypatch.setenv("SILENT", "1")
    code, out, err = ended(tmp_path, arguments, signal.SIGINT, in_the_foreground)
    assert (code, err) == (130, "")
    assert f"{told} to go on, give the same command again with --resume" in out
    assert "coverage" not in out
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "worker").read_text()), 0)
    monkeypatch.delenv("SILENT")
    (tmp_path / "worker").unlink()
    _, out, _ = ended(tmp_path, [*arguments, "--resume"], signal.SIGINT, in_the_foreground)
    assert "(interrupted)" in out


def test_what_is_ignored_stays_so(tmp_path: Path) -> None:
    """SIGHUP under nohup, and SIGINT in the background of a script."""

    def nohup() -> None:
        in_the_background()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    program = "import os, signal, sys; from faults.cli.signals import heed_signals; " \
        "heed_signals(); [os.kill(os.getpid(), n) for n in (1, 2)]; print('alive')"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=False, preexec_fn=nohup)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_a_signal_that_comes_in_a_finalizer_ends_the_command(
    tmp_path: Path, number: int, code: int
) -> None:
    """Python discards what is raised there, and would say so with a traceback."""
    program = tmp_path / "program.py"
    program.write_text(DISCARDING)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, program, "mutants", "no-fence", "group-order"],
        env={**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "0", "NUMBER": str(int(number))},
        capture_output=True, text=True, check=False, preexec_fn=in_the_foreground,
    )  # fmt: skip
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "not run: 1 mutant, as it was interrupted" in done.stdout


def test_interrupted_mutants_are_told_with_those_that_are_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that were done stay in the table, and a command runs the rest."""

    def hunt_all(chosen: object, *_: object) -> Iterator[Hunt]:
        yield Hunt(name="no-fence", breaks="all", place="here", runs=1, seed=3, groups=["leak"])
        raise KeyboardInterrupt

    monkeypatch.setattr(mutants, "hunt_all", hunt_all)
    names = ["no-fence", "group-order", "state-slot"]
    assert dispatch.run(["mutants", "--seeds", "7", *names]) == ExitCode.INTERRUPTED
    out = capsys.readouterr().out
    assert "1 of 1 caught" in out
    assert "to run the rest: faultlab mutants --seeds 7 group-order state-slot" in out
