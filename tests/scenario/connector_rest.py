"""What the two halves of a connector keep: the sizes of all containers that can be reached.

The first request of a run is served alone; what is kept when it is over is the idle size. At the
end nothing may be larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from sim.kernel.frames import original_name
from sim.probes import Probe
from sim.run import TestBed

Sizes = dict[str, int]
_CONTAINERS = (dict, list, set, deque)
_BY_NAME = ("Counters._counts",)
"""Keyed by the names of counters, and taken by the next step."""


class Rest(Probe):
    """Takes sizes when the second request arrives, and when it is asked.

    Args:
        module: of the connector; objects of other modules are not looked into.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._bed: TestBed | None = None
        self._started = 0
        self._idle: Sizes = {}

    def __call__(self, bed: TestBed) -> None:
        """Prepare a run."""
        self._bed = bed
        bed.world.probes.add(self)

    def request_started(self, request_id: str) -> None:
        self._started += 1
        if self._started == 2:
            self._idle = self._sizes()

    def grown(self) -> dict[str, tuple[int, int]]:
        """What is larger than at idle, with both sizes."""
        now = self._sizes()
        assert self._idle
        return {
            path: (self._idle.get(path, 0), size)
            for path, size in now.items()
            if size > self._idle.get(path, 0)
        }

    def _sizes(self) -> Sizes:
        assert self._bed is not None
        sizes: Sizes = {}
        for engine in self._bed.engines:
            if engine.loop is None:
                continue
            halves = [engine.loop.scheduler.connector]
            halves += [worker.runner.hooks._kv_connector.kv_connector for worker in engine.workers]
            for number, half in enumerate(halves):
                for path, size in _walk(half, self._module, set()):
                    name = f"{engine.name}/{number} {path}"
                    sizes[name] = sizes.get(name, 0) + size
        return sizes


def _walk(value: Any, module: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """The containers below an object of ``module``, by the class and name of the attribute."""
    if id(value) in seen:
        return
    seen.add(id(value))
    owner = type(value).__name__
    for name, attribute in vars(value).items():
        yield from _sizes_of(f"{owner}.{name}", attribute, module, seen)


def _sizes_of(path: str, value: Any, module: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    if type(value).__name__ == "Socket":
        yield path, 1
    elif type(value).__name__ == "Queue":
        yield path, len(value.queue)
    elif isinstance(value, _CONTAINERS) and path not in _BY_NAME:
        yield path, len(value)
        for item in list(value.values() if isinstance(value, Mapping) else value):
            yield from _sizes_of(path, item, module, seen)
    elif original_name(type(value).__module__).startswith(module) and hasattr(value, "__dict__"):
        yield from _walk(value, module, seen)
