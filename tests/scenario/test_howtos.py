"""Whoever follows a how-to page has what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from doc_pages import files
from doc_sources import HOWTOS, with_additions
from source_tree import ROOT

from faults.cli.reexec import simulation_environment

LISTS = """
from faults.cli import dispatch
from sim.model.presets import PRESETS
dispatch.run(["faults"])
dispatch.run(["oracles"])
print(*PRESETS)
"""


def test_what_the_pages_add_is_in_the_lists(tmp_path: Path) -> None:
    """One file for a kind of fault, one for a preset, one and two lines for an oracle; the soak
    runs have them at work."""
    environment = simulation_environment({"PYTHONPATH": str(with_additions(tmp_path))})
    ran = subprocess.run(
        [sys.executable, "-c", LISTS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    for shown in ("message-jitter", "up_to_ms = 10.0", "each by a time that is drawn for it",
                  "patience", "longest_s = 60.0", "small-gqa", "llama"):  # fmt: skip
        assert shown in ran.stdout


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
