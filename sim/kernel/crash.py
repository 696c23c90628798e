"""How a run ends in which the testbed, or a fault or rule that it calls, raised an exception."""

from __future__ import annotations

import traceback

from sim.errors import TaskCrashed


def crash_of(who: str, error: BaseException) -> TaskCrashed:
    """What ends the run in place of ``error``: it says where that was raised."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    crash = TaskCrashed(f"{who} raised {error!r} at {where.filename}:{where.lineno}")
    crash.__cause__ = error
    return crash
