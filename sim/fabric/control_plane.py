"""How engines meet before they can use RDMA: small requests over TCP, one connection each.

An engine's server is a native thread of its process: it answers while others hold the GIL, does
not answer while the process is paused, and nobody listens any more when the process is dead. The
TCP network itself does not fail here; rules about ``ControlItem`` make it fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simpy.events import Event

from sim.fabric.verdicts import ControlItem, refuse
from sim.kernel import Process
from sim.verdict import Delay, Deliver, Drop, Fail

if TYPE_CHECKING:
    from sim.fabric.device import Device
    from sim.fabric.fabric import Fabric

Answer = Callable[["ControlServer"], Any]

_FIRST_EPHEMERAL_PORT = 32_768


class ControlPlaneError(Exception):
    """An exchange failed; the text is the library's."""


class AddressInUse(Exception):
    """Somebody alive listens on this address already."""


@dataclass(eq=False, slots=True)
class _Exchange:
    answer: Answer
    done: Event
    reply: Any = None
    broken: bool = False


class ControlServer:
    """Listens for one engine; ``engine`` is what requests are answered from."""

    def __init__(self, plane: ControlPlane, device: Device, engine: Any) -> None:
        self.device = device
        self.engine = engine
        self._plane = plane
        self._requests: deque[_Exchange] = deque()
        self._wake: Event | None = None
        plane.fabric.kernel.spawn(
            device.process, self._serve, name="rdma-control-plane", guest=False, needs_gil=False
        )

    def submit(self, exchange: _Exchange) -> None:
        """A request has arrived."""
        self._requests.append(exchange)
        if self._wake is not None:
            wake, self._wake = self._wake, None
            wake.succeed()

    def reset(self) -> None:
        """The process is gone: connections that wait for an answer break."""
        for exchange in self._requests:
            exchange.broken = True
            self._plane.fabric.kernel.call_later(
                self._plane.half_exchange_ns, exchange.done.succeed
            )
        self._requests.clear()

    def _serve(self) -> None:
        kernel = self._plane.fabric.kernel
        while self.device.alive:
            if not self._requests:
                self._wake = kernel.event()
                kernel.wait(self._wake, what="a control-plane request")
            exchange = self._requests.popleft()
            exchange.reply = exchange.answer(self)
            kernel.call_later(self._plane.half_exchange_ns, exchange.done.succeed)


class ControlPlane:
    """All servers, by address."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self._servers: dict[tuple[str, int], ControlServer] = {}
        self._ephemeral: dict[str, int] = {}

    @property
    def half_exchange_ns(self) -> int:
        """There, or back."""
        return self.fabric.profile.control_exchange_ns // 2

    def listen(self, device: Device, engine: Any, host: str, port: int) -> int:
        """Start a server; ``port`` 0 takes a free one. Returns the port."""
        if port == 0:
            port = self._free_port(host)
        elif self.server(host, port) is not None:
            raise AddressInUse(f"{host}:{port}")
        self._servers[host, port] = ControlServer(self, device, engine)
        return port

    def _free_port(self, host: str) -> int:
        port = self._ephemeral.get(host, _FIRST_EPHEMERAL_PORT)
        while self.server(host, port) is not None:
            port += 1
        self._ephemeral[host] = port + 1
        return port

    def server(self, host: str, port: int) -> ControlServer | None:
        """Who listens at an address."""
        server = self._servers.get((host, port))
        return server if server is not None and server.device.alive else None

    def reset(self, process: Process) -> None:
        """``process`` crashed."""
        for server in self._servers.values():
            if server.device.process is process:
                server.reset()

    def exchange(
        self, item: ControlItem, host: str, port: int, answer: Answer, timeout_ns: int | None
    ) -> Any:
        """Ask the server at ``host:port``, parking the current task until it has answered."""
        kernel = self.fabric.kernel
        kernel.sleep(self.half_exchange_ns)
        verdict = self.fabric.verdicts.ask(item)
        if isinstance(verdict, Fail):
            raise ControlPlaneError(verdict.message)
        server = self.server(host, port)
        if server is None:
            raise ControlPlaneError(f"connect({host}:{port}): Connection refused")
        exchange = _Exchange(answer, kernel.event())
        match verdict:
            case Deliver():
                server.submit(exchange)
            case Delay(by_ns=by_ns):
                kernel.call_later(by_ns, server.submit, exchange)
            case Drop():
                pass
            case _:
                refuse(item, verdict)
        if not kernel.wait(exchange.done, timeout_ns, what=f"an answer of {host}:{port}"):
            raise ControlPlaneError(
                "ReadMessageHeader(type) failed: expected 1 byte(s), received 0, "
                "errno=11 (Resource temporarily unavailable)"
            )
        if exchange.broken:
            raise ControlPlaneError(
                "ReadMessageHeader(type) failed: expected 1 byte(s), received 0, "
                "errno=104 (Connection reset by peer)"
            )
        kernel.record("control-plane-exchange", request=item.kind, target=item.pair.target)
        return exchange.reply
