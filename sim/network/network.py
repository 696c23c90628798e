"""Message transport between nodes, by address and port, with the guarantees of TCP.

A connection delivers what is sent on it once, in order, one latency later, as long as no rule
of ``Network.verdicts`` says otherwise. The network honours

- Deliver; Drop: the message disappears, what follows is unaffected;
- Delay: the message, and whatever follows it on its connection, arrives ``by_ns`` later. Nothing
  overtakes it there; what goes by another connection does;
- Duplicate: a copy joins the queue ``after_ns`` later;
- Corrupt: ``change`` maps the list of frames to the list that arrives instead.

A partition loses nothing: what would arrive while it lasts (messages, connection attempts,
closes) is held and arrives one latency after the partition is healed, as retransmission would
have it. The back-off of real retransmission, which delays the recovery, and the time-out that
ends a connection after about 15 minutes are not modelled. A partition of one way only holds
that way.

The crash of a process closes its listeners and connections, as the operating system does: what
it had sent still arrives, then the other ends see the close. What arrives for it is dropped.
The same address can be listened on again at once. Paused processes still receive, as into the
buffers of the operating system.

Bandwidth is not modelled (these are control messages), except that a sender is stopped
while ``window_bytes`` are on the way or unread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from sim.kernel import Kernel, Node, Process
from sim.network.connection import Endpoint, Lane
from sim.network.directory import Directory, Hello, Listener, OnAccept
from sim.units import MIB, US
from sim.verdict import VerdictChain

OnOpen = Callable[[Endpoint, Hello], None]


class Network:
    """All nodes' operating systems as far as they carry messages."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        latency_ns: int = 50 * US,
        loopback_latency_ns: int = 10 * US,
        window_bytes: int = 4 * MIB,
    ) -> None:
        self.kernel = kernel
        self.verdicts = VerdictChain(kernel.own)
        self.directory = Directory()
        self.window_bytes = window_bytes
        self._latency_ns = latency_ns
        self._loopback_latency_ns = loopback_latency_ns
        self._endpoints: dict[Endpoint, None] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self._held: dict[Lane, None] = {}
        kernel.on_crash(self._crashed)

    def allocate_port(self, node: Node) -> int:
        """A port to listen on, as the operating system of ``node`` would choose it."""
        return self.directory.allocate_port(node)

    # ------------------------------------------------- listening, connecting

    def listen(
        self, process: Process, host: str, port: int | str, *, hello: Hello, on_accept: OnAccept
    ) -> Listener:
        """Accept connections to ``host:port`` of the process's node.

        Args:
            process: the owner, whose crash ends it.
            host: an address or name of the node, a loopback name, or ``ANY_HOST``.
            port: 0 takes a free port; a string is a path inside the node.
            hello: shown to those who connect.
            on_accept: gets the new endpoint and the hello of the side that connected.

        Raises:
            OSError: EADDRINUSE, or EADDRNOTAVAIL when the host is not this node.
        """
        node, directory = process.node, self.directory
        directory.add_node(node)
        host = directory.local_host(node, host)
        port = directory.allocate_port(node) if port == 0 else port
        if not directory.port_free(node, host, port):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = Listener(directory, process, host, port, hello, on_accept)
        directory.enter(listener)
        return listener

    def dial(
        self,
        process: Process,
        host: str,
        port: int | str,
        *,
        hello: Hello,
        on_open: OnOpen,
        on_refused: Callable[[], None],
    ) -> None:
        """Try once to connect; one of the callbacks is called a round trip later.

        ``on_open`` gets the endpoint and the listener's hello. A listener sees the connection
        half a round trip after that.
        """
        self.directory.add_node(process.node)
        target = self.directory.resolve(process.node, host)
        if target is None:
            self.kernel.call_later(2 * self._latency_ns, on_refused)
            return
        there = Lane(self, process.node, target)
        back = Lane(self, target, process.node)

        def knock() -> None:
            listener = self.directory.find(process.node, host, port)
            if listener is None:
                back.carry(on_refused)
            else:
                self._establish(process, listener, there, back, hello, on_open)

        there.carry(knock)

    def _establish(
        self,
        process: Process,
        listener: Listener,
        there: Lane,
        back: Lane,
        hello: Hello,
        on_open: OnOpen,
    ) -> None:
        number = listener.port if isinstance(listener.port, int) else 0
        client = Endpoint(
            self, process, self.directory.connecting_port(process.node), listener.port
        )
        server = Endpoint(self, listener.process, number, listener.port)
        client.peer, client.lane = server, there
        server.peer, server.lane = client, back

        def opened() -> None:
            if client.closed:
                return
            there.carry(accepted)
            on_open(client, listener.hello)

        def accepted() -> None:
            if listener.closed:
                server.close()
            elif not server.closed:
                listener.on_accept(server, hello)

        self._endpoints[client] = self._endpoints[server] = None
        back.carry(opened)

    # ------------------------------------------------------------ partitions

    def partition(self, node_a: Node, node_b: Node, *, both_ways: bool = True) -> None:
        """Nothing from ``node_a`` reaches ``node_b`` until ``heal``; nor the other way round."""
        self._cuts[node_a.ip, node_b.ip] = None
        if both_ways:
            self._cuts[node_b.ip, node_a.ip] = None
        self.kernel.record(
            "network-partitioned", source=node_a.name, target=node_b.name, both_ways=both_ways
        )

    def heal(self, node_a: Node, node_b: Node, *, both_ways: bool = True) -> None:
        """End a partition; what was held arrives one latency later."""
        self._cuts.pop((node_a.ip, node_b.ip), None)
        if both_ways:
            self._cuts.pop((node_b.ip, node_a.ip), None)
        self.kernel.record(
            "network-healed", source=node_a.name, target=node_b.name, both_ways=both_ways
        )
        held, self._held = self._held, {}
        for lane in held:
            lane.resume()  # and hold again, if its own way is still cut

    def is_cut(self, source: Node, target: Node) -> bool:
        """Whether a partition stops what goes from ``source`` to ``target``."""
        return (source.ip, target.ip) in self._cuts

    def hold(self, lane: Lane) -> None:
        """The lane owes arrivals until its way is healed."""
        self._held[lane] = None

    def latency_between(self, source: Node, target: Node) -> int:
        """One way, in nanoseconds."""
        return self._loopback_latency_ns if source.ip == target.ip else self._latency_ns

    # --------------------------------------------------------------- closing

    def forget(self, endpoint: Endpoint) -> None:
        """Called by an endpoint that has closed."""
        del self._endpoints[endpoint]

    def _crashed(self, process: Process) -> None:
        self.directory.forget_process(process)
        for endpoint in [e for e in self._endpoints if e.process is process]:
            endpoint.close()
