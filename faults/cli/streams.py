"""Standard streams that the caller has closed, as by ``>&-``."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Let those lead nowhere: what would be printed is lost, and nothing else takes their numbers,
    so that no file of a run gets what was meant for a screen."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            os.set_inheritable(descriptor, True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
