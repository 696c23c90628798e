"""Whoever follows a how-to page has what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from doc_pages import files
from doc_sources import HOWTOS, with_additions
from source_tree import ROOT

from faults import running
from faults.cli.outcome import ExitCode
from faults.cli.reexec import simulation_environment
from faults.fault import Target, Trigger
from sim.scenario import Scenario, UniformWorkload
from sim.units import MS

LISTS = """
from faults.cli import dispatch
from sim.model.presets import PRESETS
dispatch.run(["faults"])
dispatch.run(["oracles"])
print(*PRESETS)
"""

ORACLES = 'import sys; from faults.cli import dispatch; sys.exit(dispatch.run(["oracles"]))'


def python(code: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """What ``code`` does with the sources in ``directory``."""
    environment = simulation_environment({"PYTHONPATH": str(directory)})
    return subprocess.run(
        [sys.executable, "-c", code], cwd=directory, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def test_what_the_pages_add_is_in_the_lists(tmp_path: Path) -> None:
    """One file for a kind of fault, one for a preset, one and a line for an oracle; the soak
    runs have them at work."""
    ran = python(LISTS, with_additions(tmp_path))
    assert ran.returncode == 0, ran.stderr
    for shown in ("message-jitter", "up_to_ms = 10.0", "each by a time that is drawn for it",
                  "throttled", "patience", "longest_s = 60.0", "small-gqa", "llama"):  # fmt: skip
        assert shown in ran.stdout


def test_mistakes_in_the_oracle_of_the_page_are_told_with_their_lines(tmp_path: Path) -> None:
    """By any command that needs the oracles, as errors of whoever wrote them."""
    file = with_additions(tmp_path) / "sim" / "oracles" / "patience.py"
    right = file.read_text()
    started = "def request_started(self, request_id: str)"
    assert right.count(started) == 1
    line = right.partition(started)[0].count("\n") + 1
    for wrong, said in (
        ("def request_started(self, request_id: str", ": invalid syntax; mend this file"),
        (started.replace("request_s", "requst_s"), " (did you mean 'request_started'?)"),
        (started.replace(", request_id: str", ""), "is called with (self, request_id): "),
    ):
        file.write_text(right.replace(started, wrong))
        ran = python(ORACLES, tmp_path)
        assert ran.returncode == ExitCode.BAD_USAGE, ran.stderr
        assert f"{file}:{line}" in ran.stderr
        assert said in ran.stderr


def test_the_lasting_fault_of_the_page_strikes_lasts_and_is_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A consumer of a small run is slow for as long as it says, and not afterwards. It strikes
    when and whom the page's own command says, and reaches a request."""
    page = ROOT / "docs" / "howto-fault.md"
    code: dict[str, Any] = {"__name__": "throttled"}
    exec(compile(files(page)["faults/kinds/throttled.py"], "throttled.py", "exec"), code)
    (given,) = re.findall(r"--fault throttled:(\S+)", page.read_text())
    values = dict(pair.split("=") for pair in given.split(","))
    assert values.keys() == {"node", "phase", "for_s"}
    when, target = Trigger(phase=values["phase"]), Target(node=values["node"])
    fault = code["Throttled"](for_s=0.05, when=when, target=target)
    workload = UniformWorkload(requests=2, prompt_tokens=(20, 20), output_tokens=(4, 4))
    scenario = Scenario(workload=workload, quiet_phase_s=0.0)
    monkeypatch.setattr(running, "decode", lambda *_, **__: [fault])
    ran = running.run(scenario)
    (report,) = ran.faults
    assert (report.strikes, report.hits, report.missed) == (1, 1, [])
    times = {r.kind: r.time_ns for r in ran.result.log.records if r.kind.startswith("fault-")}
    assert times["fault-healed"] - times["fault-struck"] == 50 * MS


def test_the_code_of_the_pages_has_the_style_of_the_code(tmp_path: Path) -> None:
    """It is meant to be copied."""
    for page in HOWTOS:
        for name, text in files(page).items():
            (tmp_path / Path(name).name).write_text(text)
    for command in ("check", "format --check"):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command.split(), "--config",
             str(ROOT / "pyproject.toml"), str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
