from __future__ import annotations

import subprocess
import sys

from source_tree import ROOT


def test_the_import_contracts_hold() -> None:
    """Who may import whom is written in pyproject.toml and kept by import-linter."""
    command = "from importlinter.cli import lint_imports_command as lint; lint()"
    done = subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_importing_the_connector_loads_neither_vllm_nor_the_simulator() -> None:
    """It installs into a serving container, where simpy and greenlet do not exist."""
    command = (
        "import connector, sys; "
        "print([m for m in ('vllm', 'torch', 'simpy', 'greenlet', 'sim') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
