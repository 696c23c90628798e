"""One simulated process with facades, and the real modules in the same shape, for tests."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from sim.guest.facades import clock, futures, queues, threads
from sim.kernel import Kernel, Node, Process, Seed


class World:
    """A kernel, one process of one node, and the facades that its code would import."""

    def __init__(self, seed: int = 1, *, perturb: bool = False) -> None:
        self.kernel = Kernel(Seed(seed), perturb=perturb)
        self.node = Node("p0", "10.0.0.1")
        self.process = Process(self.node, "core")
        self.time = clock.make(self.kernel)
        self.threading = threads.make(self.kernel)
        self.queue = queues.make(self.kernel, self.threading, self.time)
        made = futures.make(self.kernel, self.threading, self.queue, self.time)
        self.futures = made["concurrent.futures"]

    def start(self, function: Callable[..., Any], *args: Any, name: str = "main") -> list[Any]:
        """Spawn ``function`` as a thread of the process; its result will be in the list."""
        results: list[Any] = []
        self.kernel.spawn(self.process, lambda: results.append(function(*args)), name=name)
        return results

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """What ``function`` returns when it runs in the process, or its exception."""
        with self.kernel.running():
            results = self.start(function, *args)
            self.kernel.run()
            for failure in self.kernel.failures:
                raise failure.exception
            assert results, self.kernel.describe_waiters()
        return results[0]


REAL: Any = SimpleNamespace(threading=threading, queue=queue, futures=concurrent.futures, time=time)


def same_in_both(program: Callable[[Any], Any], seed: int = 1, *, perturb: bool = False) -> None:
    """``program(modules)`` returns equal values with the real modules and with the facades."""
    world = World(seed, perturb=perturb)
    simulated, real = world.run(program, world), program(REAL)
    assert simulated == real, f"facades: {simulated}\nreal:    {real}"


def raised(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str]:
    """Type and message of the exception that a call raises."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing", ""
