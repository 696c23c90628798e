"""A process in the environment that simulations need, which runs scenario files one after another.

For callers whose own process has another hash seed or has loaded vLLM otherwise. A request is a
line of JSON on stdin, the path of a file; the answer is a line of JSON on what was stdout.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from faults.cli.reexec import simulation_environment


@dataclass(frozen=True)
class Answer:
    """The exit code of ``faultlab run`` for a file, and what it printed."""

    exit_code: int
    text: str


class ScenarioWorker:
    """The process, which starts with the first scenario and loads vLLM once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, path: Path) -> Answer:
        """``faultlab run`` of the file ``path``, in the directory where this process was."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "faults.scenario_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller, which ends this one
                env=simulation_environment(os.environ),
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, as reading will tell
            print(json.dumps(str(path)), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if line:
            return Answer(**json.loads(line))
        self._process = None
        return Answer(3, f"the process that runs scenarios died (exit code {process.wait()})")

    def end(self) -> None:
        """Kill it, if it was ever started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def main() -> int:
    """Serve requests until there are no more."""
    from faults.cli.dispatch import run  # noqa: PLC0415  # after the environment is known to fit

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nobody else's words may get among the answers
    for line in sys.stdin:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = run(["run", json.loads(line)])
        print(json.dumps({"exit_code": code, "text": said.getvalue()}), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
