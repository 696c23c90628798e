from __future__ import annotations

import os
import subprocess
import sys

import pytest

from faults.cli.reexec import REEXECUTED, simulation_environment

SHOW = (
    "import os, sys; from faults.cli.reexec import settle_process; settle_process(); "
    "print(hash('x'), os.environ['PYTHONHASHSEED'], os.environ['FAULTLAB_CALLER_HASHSEED'], "
    "os.environ['VLLM_TARGET_DEVICE'], 'vllm' in sys.modules); sys.exit(7)"
)


def start(*arguments: str, hash_seed: str | None, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run Python with ``arguments`` and the given hash seed (``None``: unset)."""
    environ = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"} | extra
    if hash_seed is not None:
        environ["PYTHONHASHSEED"] = hash_seed
    return subprocess.run(
        [sys.executable, *arguments],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("hash_seed", [None, "random", "0", "7"])
def test_the_process_has_hash_seed_zero_whatever_the_caller_had(hash_seed: str | None) -> None:
    """The caller's seed is kept for reports, and the exit code is the command's own."""
    zero = start("-c", "print(hash('x'))", hash_seed="0").stdout.strip()
    done = start("-c", SHOW, hash_seed=hash_seed)
    assert done.stdout.split() == [zero, "0", hash_seed or "random", "cpu", "False"]
    assert done.returncode == 7


def test_a_child_that_inherits_the_mark_still_replaces_itself() -> None:
    """The mark names a process, so another process is not taken for a loop."""
    done = start("-c", SHOW, hash_seed="7", **{REEXECUTED: str(os.getpid())})
    assert done.stdout.split()[1:3] == ["0", "7"]


def test_an_interpreter_that_ignores_the_environment_is_an_error_and_no_loop() -> None:
    """``-E`` makes Python deaf to the variable; the message says so."""
    done = start("-E", "-m", "faults.cli", "doctor", hash_seed=None)
    assert done.returncode == 2
    assert "start it without -E" in done.stderr


def test_arguments_and_exit_code_survive_the_replacement() -> None:
    """``python -m faults.cli`` is the command line, with the caller's arguments."""
    done = start("-m", "faults.cli", "no such command", hash_seed="7")
    assert done.returncode == 2
    assert "No such command 'no such command'" in done.stderr


def test_only_the_logging_level_is_the_callers_to_choose() -> None:
    """The rest decides what a simulation does, or whether it reports home."""
    environ = simulation_environment({"VLLM_LOGGING_LEVEL": "DEBUG", "DO_NOT_TRACK": "0"})
    assert environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert environ["DO_NOT_TRACK"] == "1"
    assert simulation_environment({})["VLLM_LOGGING_LEVEL"] == "ERROR"
