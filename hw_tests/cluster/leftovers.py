"""What supervisors that were killed have left on this machine: scratch folders, and processes.

A supervisor holds a lock in its scratch folder for as long as it lives. A folder that nobody holds
is of one that could not clean up; all that it has started has the folder in its environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

PREFIX = "faultlab-"
_LOCK = "supervisor.lock"


def hold(folder: Path) -> int:
    """Say that this process looks after ``folder``, until it closes the descriptor or ends."""
    made = folder / f"{_LOCK}.new"
    descriptor = os.open(made, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(folder / _LOCK)  # so that nobody sees it unlocked
    return descriptor


def sweep(place: Path) -> None:
    """End what killed supervisors of this user have started, and remove their folders."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or held, or gone
            descriptor = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for pid in _started_in(folder):
                    os.kill(pid, signal.SIGKILL)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _started_in(folder: Path) -> Iterator[int]:
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # gone, or not ours to read
            settings = os.fsdecode(environ.read_bytes()).split("\0")
            (scratch,) = [each[7:] for each in settings if each.startswith("TMPDIR=")] or [""]
            if scratch and folder in (Path(scratch), *Path(scratch).parents):
                yield int(environ.parent.name)
