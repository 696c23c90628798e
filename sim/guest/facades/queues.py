"""``queue``: the standard library's own code on the facade of ``threading``."""

from __future__ import annotations

import queue
import sys
from types import ModuleType
from typing import Any

from sim.guest.facades.proxy import Facade
from sim.guest.facades.standstill import stands_still
from sim.guest.facades.stdlib import run_copy
from sim.guest.facades.waiting import timeout_ns
from sim.kernel import Kernel


def make(kernel: Kernel, threading: ModuleType, time: ModuleType) -> ModuleType:
    """The facade of ``queue`` on the facades of ``threading`` and ``time``."""
    copy: Any = run_copy("queue", {"threading": threading, "time": time})
    copy.Empty, copy.Full = queue.Empty, queue.Full
    copy.Queue.get = _getter(kernel, copy.Queue.get)
    members = {name: getattr(copy, name) for name in queue.__all__}
    # The SimpleQueue in C blocks in C; its equivalent in Python is kept beside it.
    members["SimpleQueue"] = type("SimpleQueue", (copy._PySimpleQueue,), {})
    return Facade(kernel, "queue", members)


def _getter(kernel: Kernel, get: Any) -> Any:
    """``Queue.get`` without the clock, which would be kept over the wait: a thread that asks again
    and again with a time-out polls."""

    def polling_get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        if not block or timeout is None or timeout < 0:
            return get(self, block, timeout)
        task = kernel.require_task("Queue.get")
        stands = stands_still(task, sys._getframe(1), timeout_ns(timeout))
        with self.not_empty:
            if stands:
                kernel.will_poll()
            if not self.not_empty.wait_for(self._qsize, timeout):
                raise queue.Empty
            item = self._get()
            self.not_full.notify()
            return item

    # What a deadlock report calls it.
    polling_get.__code__ = polling_get.__code__.replace(co_qualname="Queue.get")
    return polling_get
