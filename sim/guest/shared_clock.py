"""``time`` in shared vLLM modules is the clock of the node that is running.

The scheduler and the engine loop are shared, not copied, and read the clock through their
module's ``time``. For the length of a run that name means the virtual clock while a task runs,
and the real one otherwise (import-time code, the test's own process).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from sim.guest.fence import GUARDS_OF_TIME
from sim.kernel import Kernel
from sim.kernel.watched_clock import plain_time

_NAMES = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep",
)  # fmt: skip
_UNWATCHED = ("vllm.v1.executor.multiproc_executor",)
"""Keep the time of a call for its time-out; an engine step that is over has got its answers."""
_REAL = {name: getattr(time, name) for name in _NAMES}


def _places() -> list[tuple[ModuleType, str, str | None]]:
    """Where vLLM modules hold the time module, or one of its functions (named third)."""
    functions = [*_REAL.items(), *GUARDS_OF_TIME.items()]  # the latter if imported during a run
    by_function = {id(function): name for name, function in functions}
    found: list[tuple[ModuleType, str, str | None]] = []
    for module_name in sorted(sys.modules):
        if not module_name.startswith("vllm."):
            continue
        module = sys.modules[module_name]
        for attribute, value in list(vars(module).items()):
            if value is time:
                found.append((module, attribute, None))
            elif callable(value) and by_function.get(id(value)) is not None:
                found.append((module, attribute, by_function[id(value)]))
    return found


_SCANNED: tuple[int, list[tuple[ModuleType, str, str | None]]] = (0, [])  # a cache, never state


def _cached_places() -> list[tuple[ModuleType, str, str | None]]:
    global _SCANNED
    if _SCANNED[0] != len(sys.modules):
        _SCANNED = (len(sys.modules), _places())
    return _SCANNED[1]


@contextmanager
def virtual_clock_in_shared_modules(kernel: Kernel, clock: ModuleType) -> Iterator[None]:
    """Within, ``clock`` (the guests' facade of time) also serves shared vLLM modules."""
    watched = _dispatching_time(kernel, clock)
    unwatched = _unwatched(watched)
    places = list(_cached_places())
    for module, attribute, function in places:
        shown = unwatched if module.__name__ in _UNWATCHED else watched
        setattr(module, attribute, getattr(shown, function) if function else shown)
    try:
        yield
    finally:
        for module, attribute, function in places:
            setattr(module, attribute, _REAL[function] if function else time)


def _dispatching_time(kernel: Kernel, clock: ModuleType) -> ModuleType:
    module = ModuleType("time")
    vars(module).update(vars(time))
    for name in _NAMES:
        vars(module)[name] = _dispatch(kernel, _REAL[name], getattr(clock, name))
    return module


def _unwatched(clock: ModuleType) -> ModuleType:
    module = ModuleType("time")
    vars(module).update(vars(clock))
    vars(module)["monotonic"] = lambda: plain_time(clock.monotonic())
    return module


def _dispatch(
    kernel: Kernel, real: Callable[..., Any], virtual: Callable[..., Any]
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return real(*args) if kernel.current() is None else virtual(*args)

    return call
