"""``queue``: the standard library's own code on the facade of ``threading``."""

from __future__ import annotations

import queue
from types import ModuleType
from typing import Any

from sim.guest.facades.proxy import Facade
from sim.guest.facades.stdlib import run_copy
from sim.kernel import Kernel


def make(kernel: Kernel, threading: ModuleType, time: ModuleType) -> ModuleType:
    """The facade of ``queue`` on the facades of ``threading`` and ``time``."""
    copy: Any = run_copy("queue", {"threading": threading, "time": time})
    copy.Empty, copy.Full = queue.Empty, queue.Full
    members = {name: getattr(copy, name) for name in queue.__all__}
    # The SimpleQueue in C blocks in C; its equivalent in Python is kept beside it.
    members["SimpleQueue"] = type("SimpleQueue", (copy._PySimpleQueue,), {})
    return Facade(kernel, "queue", members)
