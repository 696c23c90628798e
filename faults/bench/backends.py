"""What can run an exchange of messages: simulators in virtual time, and the real clock."""

from __future__ import annotations

import asyncio
import platform
import queue
import threading
import time
from collections.abc import Callable, Generator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import simpy

from faults.bench.exchange import WORK_US, Deliveries, Exchange, Message
from sim.kernel import Kernel, Mailbox, Node, Process, Seed
from sim.units import US

Backend = Callable[[Exchange], Deliveries]
_sleep = time.sleep  # bound here, before the fence guards the clocks of a run


def on_kernel(exchange: Exchange) -> Deliveries:
    """Tasks of the simulator's kernel, every switch and delivery logged and hashed."""
    kernel = Kernel(Seed(0))
    process = Process(Node("n0", "10.0.0.1"), "core")
    boxes = [Mailbox[Message](kernel, f"box {i}") for i in range(exchange.pairs)]
    taken: Deliveries = [[] for _ in boxes]

    def produce(producer: int) -> None:
        for number, wait_us in enumerate(exchange.waits_us(producer)):
            kernel.sleep(wait_us * US)
            message = Message(producer, number)
            boxes[exchange.consumer_of(message)].put(message)

    def consume(consumer: int) -> None:
        for _ in range(exchange.messages):
            message = boxes[consumer].get()
            kernel.record("taken", producer=message.producer, number=message.number)
            taken[consumer].append(message)
            kernel.sleep(WORK_US * US)

    for number in range(exchange.pairs):
        kernel.spawn(process, produce, number, name=f"producer-{number}")
        kernel.spawn(process, consume, number, name=f"consumer-{number}")
    with kernel.running():
        kernel.run()
        kernel.log.digest()
    return taken


def on_simpy(exchange: Exchange) -> Deliveries:
    """Generators of SimPy, and that is all."""
    environment = simpy.Environment()
    stores = [simpy.Store(environment) for _ in range(exchange.pairs)]
    taken: Deliveries = [[] for _ in stores]

    def produce(producer: int) -> Generator[simpy.Event, Any, None]:
        for number, wait_us in enumerate(exchange.waits_us(producer)):
            yield environment.timeout(wait_us)
            message = Message(producer, number)
            stores[exchange.consumer_of(message)].put(message)

    def consume(consumer: int) -> Generator[simpy.Event, Any, None]:
        for _ in range(exchange.messages):
            taken[consumer].append((yield stores[consumer].get()))
            yield environment.timeout(WORK_US)

    for number in range(exchange.pairs):
        environment.process(produce(number))
        environment.process(consume(number))
    environment.run()
    return taken


def on_threads(exchange: Exchange) -> Deliveries:
    """A thread each, and the real clock.

    Raises:
        RuntimeError: the system does not start that many threads.
    """
    queues = [queue.SimpleQueue[Message]() for _ in range(exchange.pairs)]
    taken: Deliveries = [[] for _ in queues]
    begin, all_started = threading.Event(), False

    def produce(producer: int) -> None:
        for number, wait_us in enumerate(exchange.waits_us(producer)):
            _sleep(wait_us / 1e6)
            message = Message(producer, number)
            queues[exchange.consumer_of(message)].put(message)

    def consume(consumer: int) -> None:
        for _ in range(exchange.messages):
            taken[consumer].append(queues[consumer].get())
            _sleep(WORK_US / 1e6)

    def play(part: Callable[[int], None], number: int) -> None:
        begin.wait()
        if all_started:
            part(number)

    parts = [(part, number) for number in range(exchange.pairs) for part in (produce, consume)]
    threads = [threading.Thread(target=play, args=part) for part in parts]
    try:
        for thread in threads:
            thread.start()
        all_started = True
    finally:
        begin.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    return taken


def on_asyncio(exchange: Exchange) -> Deliveries:
    """Coroutines on the event loop of the standard library, and the real clock."""
    return asyncio.run(_exchanged(exchange))


def on_simloop(exchange: Exchange) -> Deliveries:
    """The same coroutines on the loop of simloop, in its virtual time and traced by it."""
    loop = import_module("simloop").SimLoop(seed=0)
    try:
        taken: Deliveries = loop.run_until_complete(_exchanged(exchange))
        loop.trace_hash()
        return taken
    finally:
        loop.close()


async def _exchanged(exchange: Exchange) -> Deliveries:
    queues = [asyncio.Queue[Message]() for _ in range(exchange.pairs)]
    taken: Deliveries = [[] for _ in queues]

    async def produce(producer: int) -> None:
        for number, wait_us in enumerate(exchange.waits_us(producer)):
            await asyncio.sleep(wait_us / 1e6)
            message = Message(producer, number)
            queues[exchange.consumer_of(message)].put_nowait(message)

    async def consume(consumer: int) -> None:
        for _ in range(exchange.messages):
            taken[consumer].append(await queues[consumer].get())
            await asyncio.sleep(WORK_US / 1e6)

    parts = [part(number) for number in range(exchange.pairs) for part in (produce, consume)]
    await asyncio.gather(*parts)
    return taken


KERNEL, SIMPY, SIMLOOP = "this kernel", "SimPy alone", "simloop"
THREADS, ASYNCIO = "threads, real clock", "asyncio, real clock"
BACKENDS: dict[str, Backend] = {
    KERNEL: on_kernel,
    SIMPY: on_simpy,
    SIMLOOP: on_simloop,
    THREADS: on_threads,
    ASYNCIO: on_asyncio,
}
REAL_CLOCK = (THREADS, ASYNCIO)


def missing() -> dict[str, str]:
    """Which of `BACKENDS` cannot run here, and why."""
    if find_spec("simloop") is not None:
        return {}
    python = platform.python_version()
    return {SIMLOOP: f"not installed; it is on PyPI for Python 3.12 and later, this is {python}"}


def simloop_version() -> str:
    """Of the installed one, or "absent"."""
    try:
        return version("simloop")
    except PackageNotFoundError:
        return "absent"
