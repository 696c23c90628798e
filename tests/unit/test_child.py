"""Processes that may not outlive the one that has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

_PROGRAM = "import sys; from hw_tests.child import die_with_parent as die; die(int(sys.argv[1]))"


@pytest.mark.parametrize(
    ("parent", "code"),
    [(os.getpid(), 0), (1 << 22, -signal.SIGKILL)],
    ids=["its own", "nobody's"],
)
def test_a_process_whose_parent_has_gone_already_ends_at_once(parent: int, code: int) -> None:
    """The kernel kills it for an end that is still to come only."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(parent)], check=False)
    assert done.returncode == code
