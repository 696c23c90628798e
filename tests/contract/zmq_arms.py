"""What the zmq programs run on, pyzmq with real threads or the facade, and what they share."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import zmq

from sim.guest.facades.zmq import make
from sim.kernel import Kernel, Node, Process, Seed
from sim.network import Network

Program = Callable[[], Any]
_JOIN_S = 20
LOCAL = "tcp://127.0.0.1"
SOON_MS = 5_000  # for what must happen
NEVER_MS = 150  # for what must not happen


class RealArm:
    """pyzmq over the loopback interface, a thread for each program."""

    zmq: Any = zmq

    def run(self, *programs: Program) -> list[Any]:
        """Results of the programs, or their exceptions."""
        results: list[Any] = [None] * len(programs)
        threads = [
            threading.Thread(target=_store, args=(results, i, program), daemon=True)
            for i, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive(), f"a program hangs; results so far: {results}"
        return results

    def free_port(self) -> int:
        """A port that nobody listens on."""
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as raw:
            return int(raw.getsockname()[1])

    def send_garbage(self, port: int) -> None:
        """Open a connection and say what is no zmq."""
        with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


class FacadeArm:
    """The facade on a simulated network, a task for each program."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._network = Network(kernel)
        self._process = Process(Node("n0", "10.0.0.1"), "engine")
        self.zmq: Any = make(kernel, self._network)["zmq"]

    def run(self, *programs: Program) -> list[Any]:
        """Results of the programs, or their exceptions."""
        results: list[Any] = [None] * len(programs)
        left = [len(programs)]
        done = self._kernel.event()

        def body(i: int, program: Program) -> None:
            _store(results, i, program)
            left[0] -= 1
            if not left[0]:
                done.succeed()

        for i, program in enumerate(programs):
            self._kernel.spawn(self._process, body, i, program, name=f"t{i}")
        self._kernel.run(until=done)
        return results

    def free_port(self) -> int:
        """A port that nobody listens on."""
        return self._network.allocate_port(self._process.node)

    def send_garbage(self, port: int) -> None:
        """Open a connection and say what is no zmq."""
        self._network.dial(
            self._process,
            "127.0.0.1",
            port,
            hello=b"GET / HTTP/1.1",
            on_open=lambda endpoint, _greeting: endpoint.send([b"\r\nHost: x\r\n\r\n"]),
            on_refused=lambda: None,
        )


def _store(results: list[Any], i: int, program: Program) -> None:
    try:
        results[i] = program()
    except Exception as error:
        results[i] = error


@contextlib.contextmanager
def arm_named(name: str) -> Iterator[RealArm | FacadeArm]:
    """``real`` or ``facade``, or ``perturbed-facade`` with shuffled events and preemption."""
    if name == "real":
        yield RealArm()
        return
    with Kernel(Seed(3), perturb=name == "perturbed-facade").running() as kernel:
        yield FacadeArm(kernel)


Arm = RealArm | FacadeArm


class Bench:
    """One context whose sockets neither hang nor outlive the test."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.zmq = arm.zmq
        self.context = arm.zmq.Context()

    def socket(self, kind: str, **options: Any) -> Any:
        socket = self.context.socket(getattr(self.zmq, kind))
        socket.RCVTIMEO = socket.SNDTIMEO = SOON_MS
        socket.LINGER = 0
        for name, value in options.items():
            setattr(socket, name, value)
        return socket

    def bound(self, kind: str, **options: Any) -> tuple[Any, int]:
        socket = self.socket(kind, **options)
        return socket, socket.bind_to_random_port(LOCAL)

    def connected(self, kind: str, port: int, **options: Any) -> Any:
        socket = self.socket(kind, **options)
        socket.connect(f"{LOCAL}:{port}")
        return socket

    def pair(self, bound: str, connected: str) -> tuple[Any, Any]:
        one, port = self.bound(bound)
        return one, self.connected(connected, port)

    def free_port(self) -> int:
        return self.arm.free_port()

    def silent(self, socket: Any) -> bool:
        return socket.poll(NEVER_MS) == 0


def run(arm: Arm, program: Any) -> Any:
    """Run ``program(bench)`` in a thread of its own; its result or its exception."""

    def body() -> Any:
        bench = Bench(arm)
        try:
            return program(bench)
        finally:
            bench.context.destroy(linger=0)

    (result,) = arm.run(body)
    if isinstance(result, Exception):
        raise result
    return result


def errno_of(call: Any) -> str | None:
    """Name of the zmq error of a call, or the text of its TypeError."""
    try:
        call()
    except zmq.ZMQError as error:
        return errno.errorcode.get(error.errno) or zmq.Errno(error.errno).name
    except TypeError as error:
        return str(error)
    return None
