"""``concurrent.futures``: the standard library's own code on facades of threads and queues.

Three things differ from it. Futures hash by number, so that sets of them iterate alike in every
run; no lock is shared between processes; and a failure of the testbed inside a work item ends
the run instead of becoming a result. Process pools are not stood in for.
"""

from __future__ import annotations

import concurrent.futures as real
import contextlib
import itertools
import logging
from collections.abc import Callable
from concurrent.futures.thread import BrokenThreadPool
from types import ModuleType
from typing import Any

from sim.errors import TestbedError
from sim.guest.facades.proxy import Facade
from sim.guest.facades.stdlib import run_copy
from sim.kernel import Kernel

_WORKERS_BY_DEFAULT = 32  # what the library chooses on any host with at least 28 CPUs
_EXCEPTIONS = (
    "BrokenExecutor", "CancelledError", "InvalidStateError", "TimeoutError",
)  # fmt: skip
_MEMBERS = (
    "FIRST_COMPLETED", "FIRST_EXCEPTION", "ALL_COMPLETED", "Future", "Executor", "wait",
    "as_completed",
)  # fmt: skip


def make(
    kernel: Kernel, threading: ModuleType, queue: ModuleType, time: ModuleType
) -> dict[str, ModuleType]:
    """The facades of ``concurrent`` and the modules below it, by full name."""
    base = _base(kernel, threading, time)
    thread = _thread(kernel, base, threading, queue)
    pool = {"ThreadPoolExecutor": thread.ThreadPoolExecutor}
    members = {name: getattr(base, name) for name in (*_MEMBERS, *_EXCEPTIONS)}
    below = Facade(
        kernel, "concurrent.futures.thread", {**pool, "BrokenThreadPool": BrokenThreadPool}
    )
    futures = Facade(
        kernel,
        "concurrent.futures",
        {**members, **pool, "_base": base, "thread": below, "__path__": []},
    )
    return {
        "concurrent": Facade(kernel, "concurrent", {"futures": futures, "__path__": []}),
        "concurrent.futures": futures,
        "concurrent.futures._base": base,
        "concurrent.futures.thread": below,
    }


def _base(kernel: Kernel, threading: ModuleType, time: ModuleType) -> Any:
    base: Any = run_copy("concurrent.futures._base", {"threading": threading, "time": time})
    for name in _EXCEPTIONS:
        setattr(base, name, getattr(real, name))
    base.LOGGER = _logger(kernel)
    numbers = itertools.count(1)

    def number(future: Any) -> int:
        attributes = vars(future)
        if "_number" not in attributes:
            attributes["_number"] = next(numbers)
        return int(attributes["_number"])

    base.Future.__hash__ = number
    base.id = hash  # the order in which wait() and as_completed() lock futures
    return base


def _thread(kernel: Kernel, base: Any, threading: ModuleType, queue: ModuleType) -> Any:
    package = ModuleType("concurrent.futures")
    vars(package)["_base"] = base
    host = ModuleType("os")
    vars(host)["cpu_count"] = lambda: _WORKERS_BY_DEFAULT
    facades = {"concurrent.futures": package, "threading": threading, "queue": queue, "os": host}
    thread: Any = run_copy("concurrent.futures.thread", facades)
    thread.BrokenThreadPool = BrokenThreadPool
    # It guards against the interpreter's shutdown only, and would tie processes together.
    thread._global_shutdown_lock = contextlib.nullcontext()
    work_item = thread._WorkItem

    def new_work_item(future: Any, function: Any, args: Any, kwargs: Any) -> Any:
        return work_item(future, _reporting(kernel, function), args, kwargs)

    thread._WorkItem = new_work_item
    return thread


def _reporting(kernel: Kernel, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose testbed errors end the run; an executor would keep them as results."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TestbedError as error:
            kernel.fail_run(error)
            raise

    return call


def _logger(kernel: Kernel) -> logging.Logger:
    """The library's logger, silent about threads that unwind after the run."""
    logger = logging.Logger("concurrent.futures")
    logger.parent = logging.getLogger()
    logger.addFilter(lambda _record: not kernel.closing)
    return logger
