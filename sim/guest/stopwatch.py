"""How long the code under test runs between its calls of what stands in for its surroundings.

`Stopwatch.timed` makes a function of the code under test begin an interval; the call of a facade
ends it, and the facade's return begins the next. So no interval contains the simulator. A run has
the same intervals each time, so the least that each of them took in several runs is what it takes
on a machine that does nothing else.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from types import FunctionType, MethodType, ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

from sim.guest.facades.threads import Thread

Label = TypeVar("Label")
_clock = time.thread_time_ns  # bound here, before the fence guards the clocks of a run
_STANDING_IN = (
    "sim.device.",
    "sim.engine.device_tensor",
    "sim.fabric.mori.",
    "sim.guest.facades.",
    "sim.guest.fence",
    "sim.guest.guest_log",
    "sim.guest.imports",
    "sim.kernel.watched_clock",
)


class Interval(NamedTuple, Generic[Label]):
    """Code under test that ran without interruption.

    Args:
        label: of the timed function, or of the thread.
        ns: processor time, less what reading the clock takes.
        until: the function of a facade that was called then; empty where the timed function ended.
    """

    label: Label
    ns: int
    until: str


class Stopwatch(Generic[Label]):
    """Collects the intervals of one run, in order."""

    def __init__(self) -> None:
        self.intervals: list[Interval[Label]] = []
        self.label: Label | None = None
        """Of the interval that runs; None in the simulator, and in code that is not timed."""
        self._since = 0
        self._reading_ns = _time_to_read_the_clock()

    def timed(
        self, function: Callable[..., Any], label_of: Callable[[], Label]
    ) -> Callable[..., Any]:
        """``function``; each call of it gets a label of its own."""

        @functools.wraps(function)
        def timing(*args: Any, **kwargs: Any) -> Any:
            caller = self._end("")
            self._begin(label_of())
            try:
                return function(*args, **kwargs)
            finally:
                self._end("")
                self._begin(caller)

        return timing

    @contextmanager
    def watching(
        self, facades: Mapping[str, ModuleType], thread_label: Callable[[], Label]
    ) -> Iterator[None]:
        """Within, facades end intervals, and threads of the code under test are timed."""
        undo: list[tuple[type, str, Any]] = []
        run_thread = Thread.run
        for module in facades.values():
            self._wrap_module(module, undo)
        for name, module in list(sys.modules.items()):
            if name.startswith(_STANDING_IN):
                for value in list(vars(module).values()):
                    if isinstance(value, type) and value.__module__ == name:
                        self._wrap_class(value, undo)
        Thread.run = self.timed(run_thread, thread_label)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for owner, name, value in reversed(undo):
                type.__setattr__(owner, name, value)

    # ---------------------------------------------------------------- internal

    def _begin(self, label: Label | None) -> None:
        self.label = label
        self._since = _clock()

    def _end(self, until: str) -> Label | None:
        label = self.label
        if label is not None:
            ns = _clock() - self._since - self._reading_ns
            self.intervals.append(Interval(label, max(ns, 0), until))
            self.label = None
        return label

    def _wrap_module(self, module: ModuleType, undo: list[tuple[type, str, Any]]) -> None:
        for name, value in list(vars(module).items()):
            if not getattr(value, "__module__", "").startswith("sim."):
                continue
            if isinstance(value, FunctionType | MethodType):
                vars(module)[name] = self._outside(value)
            elif isinstance(value, type):
                self._wrap_class(value, undo)

    def _wrap_class(self, cls: type, undo: list[tuple[type, str, Any]]) -> None:
        for name, value in list(vars(cls).items()):
            wrapped = self._wrapped(value)
            if wrapped is not None and name != "__new__":
                undo.append((cls, name, value))
                type.__setattr__(cls, name, wrapped)

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, FunctionType) and not inspect.isgeneratorfunction(value):
            return self._outside(value)
        if isinstance(value, staticmethod | classmethod):
            return type(value)(self._outside(value.__func__))
        if isinstance(value, property) and value.fget is not None:
            return property(self._outside(value.fget), value.fset, value.fdel)
        return None

    def _outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__qualname__

        @functools.wraps(function)
        def outside(*args: Any, **kwargs: Any) -> Any:
            label = self.label
            if label is None:
                return function(*args, **kwargs)
            self._end(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._begin(label)

        return outside


def _time_to_read_the_clock() -> int:
    """Nanoseconds between two readings with nothing in between, the least of many."""
    readings = [_clock() for _ in range(1000)]
    return min(after - before for before, after in pairwise(readings))
