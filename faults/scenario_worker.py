"""Has a process in the environment that simulations need run scenarios, one after another.

For callers whose own process has another hash seed or has loaded vLLM otherwise. What it does with
a job is in ``scenario_server.py``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from faults.cli.reexec import simulation_environment
from sim.errors import TestbedError

if TYPE_CHECKING:
    from faults.results import Run
    from sim.scenario import Scenario


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """There was no run: ``usage`` means that the scenario is at fault, and not the testbed."""

    usage: bool
    message: str


class ScenarioWorker:
    """The process, which starts with the first scenario and loads vLLM once.

    Threads take turns. A call that is interrupted ends the process, since the answer that is still
    to come would be taken for the next call's.
    """

    def __init__(self, command: list[str] | None = None) -> None:
        self._command = command or [sys.executable, "-m", "faults.scenario_server"]
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._number = 0

    def run(self, scenario: Scenario, out: Path | None) -> Run | Refusal:
        """One run, as if in the current directory of this process."""
        job = {"scenario": scenario, "directory": os.getcwd(), "out": out and str(out)}
        with self._turn:
            self._number += 1
            try:
                line = self._answered(msgspec.json.encode({**job, "number": self._number}))
                if line.endswith(b"\n"):
                    return self._decoded(line)
            except BaseException:
                self.end()
                raise
            assert self._process is not None
            code = self._process.wait()
            self._process = None
        return Refusal(False, f"the process that runs scenarios died (exit code {code})")

    def _answered(self, job: bytes) -> bytes:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, as reading will tell
            process.stdin.write(job + b"\n")
            process.stdin.flush()
        return process.stdout.readline()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the caller, which ends this one
            env=simulation_environment(os.environ),
        )

    def _decoded(self, line: bytes) -> Run | Refusal:
        from faults.results import Run  # noqa: PLC0415  # pytest loads this file, used or not

        number, answer = msgspec.json.decode(line, type=tuple[int, Run | Refusal])
        if number != self._number:
            raise TestbedError(
                f"the process that runs scenarios answered job {number} instead of {self._number}; "
                "it was ended, and the next run starts another"
            )
        return answer

    def end(self) -> None:
        """Kill it, if it was ever started."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
