"""Has a process in the environment that simulations need run scenarios, one after another.

For callers whose own process has another hash seed or has loaded vLLM otherwise. What it does with
a job is in ``scenario_server.py``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from faults.cli.reexec import simulation_environment

if TYPE_CHECKING:
    from faults.results import Run
    from sim.scenario import Scenario


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """There was no run: ``usage`` means that the scenario is at fault, and not the testbed."""

    usage: bool
    message: str


class ScenarioWorker:
    """The process, which starts with the first scenario and loads vLLM once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, scenario: Scenario, out: Path | None) -> Run | Refusal:
        """One run, as if in the current directory of this process."""
        from faults.results import Run  # noqa: PLC0415  # pytest loads this file, used or not

        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.scenario_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is for the caller, which ends this one
                env=simulation_environment(os.environ),
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        job = {"scenario": scenario, "directory": os.getcwd(), "out": out and str(out)}
        with contextlib.suppress(BrokenPipeError):  # it has died, as reading will tell
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Run | Refusal)
        self._process = None
        code = process.wait()
        return Refusal(False, f"the process that runs scenarios died (exit code {code})")

    def end(self) -> None:
        """Kill it, if it was ever started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
