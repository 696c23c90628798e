"""Two nodes and a network, without any protocol on top, for tests."""

from __future__ import annotations

from typing import Any

from sim.kernel import Kernel, Node, Process, Seed
from sim.network import Endpoint, Network

PORT = 6301
LATENCY_NS = 50_000


class World:
    """A server on node d0 that writes down what it gets, and clients that connect to it."""

    def __init__(self, seed: int = 1, *, perturb: bool = False, **options: int) -> None:
        self.kernel = Kernel(Seed(seed), perturb=perturb)
        self.network = Network(self.kernel, latency_ns=LATENCY_NS, **options)
        self.client = Process(Node("p0", "10.0.0.1"), "core")
        self.server = Process(Node("d0", "10.0.0.2"), "core")
        self.got: list[tuple[int, list[bytes]]] = []
        self.accepted: list[Endpoint] = []
        self.lost: list[str] = []

    @property
    def texts(self) -> list[str]:
        """First frames that arrived at the server."""
        return [frames[0].decode() for _time, frames in self.got]

    def listen(self, process: Process | None = None) -> Any:
        """Start the server, or one like it in another process."""
        return self.network.listen(
            process or self.server, "*", PORT, hello="server", on_accept=self._accepted
        )

    def _accepted(self, endpoint: Endpoint, _hello: object) -> None:
        self.accepted.append(endpoint)
        endpoint.on_message = lambda frames: self._received(endpoint, frames)
        endpoint.on_close = lambda: self.lost.append("server")

    def _received(self, endpoint: Endpoint, frames: Any) -> None:
        endpoint.acknowledge(frames)
        self.got.append((self.kernel.now_ns, list(frames)))

    def connect(self, process: Process | None = None) -> Endpoint:
        """A connection to the server, made while time passes."""
        opened: list[Endpoint] = []
        self.network.dial(
            process or self.client,
            self.server.node.ip,
            PORT,
            hello="client",
            on_open=lambda endpoint, _hello: opened.append(endpoint),
            on_refused=lambda: opened.clear(),
        )
        self.kernel.run(until_ns=self.kernel.now_ns + 4 * LATENCY_NS)
        (endpoint,) = opened
        endpoint.on_close = lambda: self.lost.append("client")
        return endpoint

    def pass_time(self, latencies: int = 10) -> None:
        """Let everything happen that is due within so many latencies."""
        self.kernel.run(until_ns=self.kernel.now_ns + latencies * LATENCY_NS)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Fields of the log's records of one kind."""
        return [record.fields for record in self.kernel.log.records if record.kind == kind]
