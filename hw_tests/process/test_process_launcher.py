"""No process is left behind, however a test ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from hw_tests.process.launcher import Launcher, ProcessEnded, until
from hw_tests.process.pair import Engines

PROGRAM = f"{__name__}:serve"


def serve(commands: Connection, argument: object) -> None:
    """Echoes commands; ends itself on ``fail``."""
    commands.send("ready")
    while True:
        command, _ = commands.recv()
        if command == "fail":
            raise RuntimeError(f"told to fail with {argument}")
        commands.send(command)


def hold_two(logs: str) -> None:
    """Starts two processes, one of them stopped, tells their ids and waits to be killed.

    What a shell starts in the background ignores SIGINT, and so do its children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    launcher = Launcher([], Path(logs))
    processes = [launcher.start(name, PROGRAM, None) for name in ("running", "stopped")]
    processes[1].suspend()
    print(*(process.pid for process in processes), flush=True)
    time.sleep(600)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_end_of_the_test_is_the_end_of_its_processes(
    tmp_path: Path, number: signal.Signals
) -> None:
    """By any signal, without a chance to clean up; stopped ones, too."""
    command = f"from {__name__} import hold_two; hold_two({str(tmp_path)!r})"
    holder = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    pids = [int(pid) for pid in holder.stdout.readline().split()]
    assert len(pids) == 2
    holder.send_signal(number)
    holder.wait(timeout=60)
    until(lambda: not any(_exists(pid) for pid in pids), f"{pids} end")


def test_a_process_that_fails_says_why(all_engines: Engines) -> None:
    """The exception of a command has the end of the log."""
    process = all_engines.launchers["kv_producer"].start("failing", PROGRAM, "an argument")
    assert process.call("echo") == "echo"
    with pytest.raises(ProcessEnded, match="RuntimeError: told to fail with an argument"):
        process.call("fail")
    assert process.exit_code() == 1


def test_a_stopped_process_is_killed_as_well(all_engines: Engines) -> None:
    """And killing it again changes nothing."""
    process = all_engines.launchers["kv_producer"].start("stopped", PROGRAM, None)
    process.suspend()
    process.kill()
    assert process.exit_code() == -signal.SIGKILL
    process.kill()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
