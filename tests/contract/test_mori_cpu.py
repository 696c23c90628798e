"""The arm of the released library: what it reports, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hw_tests.arms import ARMS, run_beside
from hw_tests.arms.mori_cpu.build import Unavailable, prepare
from hw_tests.child import ChildFailed
from hw_tests.conformance.arm import Case

ROOT = Path(__file__).parents[2]


def _check(arm: object) -> None:
    raise NotImplementedError


def test_what_fails_beside_the_library_fails_here_with_its_text() -> None:
    """A case that its process does not know ends with that process's traceback."""
    arm = ARMS["mori-cpu"]()
    if (reason := arm.unavailable()) is not None:
        pytest.skip(reason)
    with pytest.raises(ChildFailed, match=r"exit code 1\n.*Traceback"):
        arm.run(Case("9.9", _check, frozenset()))


@pytest.mark.parametrize(
    ("said", "passes"), [("\n9.9-_check\nlate log", True), ("case 9.9-_check", False)]
)
def test_a_process_that_ends_before_its_case_does_fails(
    tmp_path: Path, said: str, passes: bool
) -> None:
    """As when the library ends it with exit code 0: only `run_case` tells that the case is over."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
    python.chmod(0o755)
    case = Case("9.9", _check, frozenset())
    if passes:
        run_beside("mori-cpu", case, python, {})
        return
    with pytest.raises(ChildFailed, match=r"9\.9-_check: exit code 0 before its end\ncase 9"):
        run_beside("mori-cpu", case, python, {})


def test_a_missing_tool_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"apt install gcc|pyenv install 3\.10"):
        prepare.__wrapped__(tmp_path / "build")


def test_what_cannot_be_had_without_gpus_is_skipped() -> None:
    """And there is no hardware that could be required."""
    if (reason := ARMS["mori-cpu"]().unavailable()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "hw_tests"]
    command += ["--arm", "mori-cpu", "-k", "falling_back_to_xgmi", "-rs"]
    for more, code, words in (
        ([], 0, "this arm has no xgmi"),
        (["--require-hardware"], 4, "--require-hardware: --arm mori-cpu needs nothing of this"),
    ):
        done = subprocess.run(
            [*command, *more], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, words in done.stdout + done.stderr) == (code, True), done.stdout
