"""A producer rank as a consumer rank sees it: what it says of its memory, and reads from it.

Used by the loader's thread alone. Nothing here waits: the loader calls again and again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import zmq
from vllm.distributed.kv_transfer.kv_connector.v1.moriio.moriio_layout import HeadLayout
from vllm.utils.network_utils import make_zmq_path

from connector import wire
from connector.batch import Batch
from connector.conversation import Conversation
from connector.core.errors import MalformedPayload, PeerMismatch
from connector.core.pairing import Plan
from connector.endpoint import Endpoint, Endpoints
from connector.memory import CacheMemory, Layer, Offsets
from connector.transport import TransportError, unpack_memory

CheckWelcome = Callable[[str, wire.Welcome], None]
"""Raises PeerMismatch if the caches of the named peer are not like ours."""


_TURN_S = 0.05  # of opening sessions while other loads wait
_SHARE = 10  # a peer that fails to open sessions may cost the others this part of their time


class _Source(NamedTuple):
    """One layer's cache here and at the peer: memories, the layer's starts in them, and its heads
    there; ``key`` names the session."""

    layer: Layer
    key: tuple[int, int]
    local: Any
    remote: Any
    local_base: int
    remote_base: int
    heads: HeadLayout | None


class Peer:
    """One producer rank.

    Args:
        context: for sockets.
        host: of the rank.
        port: its handshake port.
        memory: ours.
        endpoints: ours.
        check: refuses a peer.
        control_timeout_s: for one answer.
        longest_pause_s: after a session could not be opened; shorter than a load may take, so that
            each has its try.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        host: str,
        port: int,
        memory: CacheMemory,
        endpoints: Endpoints,
        check: CheckWelcome,
        control_timeout_s: float,
        longest_pause_s: float,
    ) -> None:
        self.name = f"{host}:{port}"
        self.talk = Conversation(
            context, self.name, make_zmq_path("tcp", host, port), control_timeout_s
        )
        self._memory = memory
        self._endpoints = endpoints
        self.endpoint: Endpoint | None = None
        self._check = check
        self._longest_pause_s = longest_pause_s
        self._paused_until: float | None = None
        self._is_on_trial = False
        """Whether reads have failed since the last that succeeded."""
        self.trouble = ""
        self.welcome: wire.Welcome | None = None
        """That reads are set up by."""
        self._forgotten = 0
        """How many welcomes are too old for a read: with no other, it has to be greeted first."""
        self._sources: list[_Source] = []
        self._sessions: dict[tuple[int, int], Any] = {}

    # --------------------------------------------------------------- handshake

    def connect(self, now: float, incarnation: str | None, since: float) -> bool:
        """Go on with the handshake; True when the peer is ready to be read from.

        Args:
            now: monotonic, in seconds.
            incarnation: that the peer must have, as far as the offer tells.
            since: when the offer was taken up.

        Raises:
            ConnectorError: it cannot be read from.
        """
        self._take(self._endpoints.current(on_trial=self._is_on_trial))
        talk = self.talk
        if talk.hellos_answered == self._forgotten:
            talk.greet(now)
        if talk.heard is None or talk.hellos_answered == self._forgotten:
            return False
        self._set_up(talk.heard)
        if talk.is_with(incarnation, since):
            return True
        talk.greet(now)  # what is set up stays, whatever is wrong with the offer
        return False

    def _set_up(self, welcome: wire.Welcome) -> None:
        """Reads from the engine that was heard last; what is set up already stays."""
        before = self.welcome
        if before is not welcome and not _is_same_engine(before, welcome):
            self._clear()
            try:
                self._check(self.name, welcome)
                self._take_in(welcome)
            except Exception:
                self.forget()
                raise
        self.welcome = welcome

    def _take(self, endpoint: Endpoint) -> None:
        """Sessions are of one endpoint."""
        if endpoint is not self.endpoint:
            self.forget()
            self.endpoint = endpoint

    def forget(self) -> None:
        """Shake hands again before the next read."""
        self._clear()
        self._forgotten = self.talk.hellos_answered
        self.talk.start_over()

    def _clear(self) -> None:
        self.welcome = None
        self._sources.clear()
        self._sessions.clear()

    def _take_in(self, welcome: wire.Welcome) -> None:
        """Where each layer begins in the peer's registered memory."""
        assert self.endpoint is not None
        self._sources.clear()  # of a welcome that could not be taken in as a whole
        self.endpoint.transport.add_peer(welcome.metadata.agent_metadata)
        addresses = iter(welcome.metadata.kv_caches_base_addr)
        firsts = dict.fromkeys(regions[0] for regions in welcome.descriptors.values() if regions)
        memories = {packed: unpack_memory(packed) for packed in firsts}
        for layer in self._memory.layers:
            packed = welcome.descriptors.get(layer.name, [])
            if len(packed) != len(layer.regions):
                raise PeerMismatch(
                    f"{self.name} has {len(packed)} memory regions for {layer.name}, here it has "
                    f"{len(layer.regions)}"
                )
            address = next(addresses, None)
            if address is None:
                raise MalformedPayload(f"{self.name} advertises too few addresses")
            remote = _widest(memories[packed[0]], memories.values())
            local, local_base = self.endpoint.local[layer.name]
            heads = welcome.metadata.kv_head_layouts.get(layer.name)
            self._sources.append(
                _Source(
                    layer,
                    (local.id, remote.id),
                    local,
                    remote,
                    local_base,
                    address - remote.data,
                    None if heads is None else HeadLayout.from_wire(heads),
                )
            )
            for _ in layer.regions[1:]:
                next(addresses, None)

    # ------------------------------------------------------------------ reading

    def open_sessions(self, plan: Plan) -> bool:
        """Go on to open what ``plan`` is read through; True when that is done.

        The library holds the interpreter's lock meanwhile, so each call takes a short time, or a
        single exchange with the peer. After one that failed the peer is left alone for a while.

        Raises:
            TransportError: a session cannot be opened; the peer has to answer a handshake again.
        """
        assert self.endpoint is not None
        began = time.monotonic()
        if self._is_paused(began):
            return False
        for source in self._sources:
            key = source.key
            if key in self._sessions or not plan.ours[source.layer.payload_index]:
                continue
            if time.monotonic() - began > _TURN_S:
                return False
            try:
                session = self.endpoint.transport.open_session(source.local, source.remote)
                self._sessions[key] = session
            except TransportError as error:
                self._pause(began, str(error))
                raise
        self.trouble = ""
        return not self._renew_if_broken()

    def _renew_if_broken(self) -> bool:
        """Give up an endpoint that the library knows to be broken since it was last read through.

        A new one is tried whatever the library says, so this is asked once for each.
        """
        endpoint = self.endpoint
        assert endpoint is not None
        if not endpoint.transport.has_read or all(s.alive() for s in self._sessions.values()):
            return False
        self._endpoints.retire(endpoint, peer=self.name, reason="its queue pairs have failed")
        return True

    def _pause(self, began: float, trouble: str) -> None:
        now = time.monotonic()
        self._paused_until = now + min(_SHARE * (now - began), self._longest_pause_s)
        self.trouble = trouble

    def _is_paused(self, now: float) -> bool:
        """After a pause the peer has to answer a handshake before anything else."""
        if self._paused_until is None:
            return False
        if now >= self._paused_until:
            self._paused_until = None
            self.forget()
        return True

    def reads_failed(self, endpoint: Endpoint, reason: str) -> None:
        """Expect nothing more of an endpoint's reads, and use its queue pairs for no others."""
        self._is_on_trial = True
        self._endpoints.retire(endpoint, peer=self.name, reason=reason)

    def reads_succeeded(self, endpoint: Endpoint) -> None:
        """And were of use."""
        if self._is_on_trial and endpoint is self.endpoint:
            self._is_on_trial = False
            self._endpoints.passed(endpoint)

    def batches(self, plan: Plan) -> list[Batch]:
        """The reads of ``plan``, in batches that a send queue has room for; all sessions are open.

        Raises:
            ValueError: a block id is outside a pool.
        """
        assert self.welcome is not None
        peer_blocks = self.welcome.metadata.num_blocks
        batches: dict[tuple[int, int], Batch] = {}
        offsets_of: dict[tuple[Any, ...], Offsets] = {}  # layers of a group mostly lie alike
        for layer, key, _, _, local_base, remote_base, heads in self._sources:
            mine, other = plan.ours[layer.payload_index], plan.theirs[layer.payload_index]
            if not mine:
                continue
            alike = (layer.payload_index, layer.blocks, layer.head_layout, heads)
            if alike not in offsets_of:
                offsets_of[alike] = self._memory.read_offsets(
                    layer, mine, other, peer_blocks, heads
                )
            ours, theirs, sizes = offsets_of[alike]
            batch = batches.setdefault(key, Batch(self._sessions[key], [], [], []))
            batch.ours += [local_base + offset for offset in ours]
            batch.theirs += [remote_base + offset for offset in theirs]
            batch.sizes += sizes
        return [part for batch in batches.values() for part in batch.parts()]

    def close_handshake(self) -> None:
        """Wait for no welcome any longer."""
        self.talk.rest()

    @property
    def tells_digests(self) -> bool:
        """Whether the connected peer can be asked for digests."""
        assert self.welcome is not None
        return self.welcome.digests

    def close(self) -> None:
        self.forget()
        self.talk.close()


def _is_same_engine(one: wire.Welcome | None, other: wire.Welcome) -> bool:
    """As far as they tell: upstream's do not."""
    return one is not None and one.incarnation == other.incarnation is not None


def _widest(memory: Any, others: Iterable[Any]) -> Any:
    """The largest of a peer's memories that has all of ``memory`` in it.

    Each that is read from costs a session, and the peer registers all of its pages with the device
    meanwhile. Those of recurrent layers overlap, and the whole allocation has them all.
    """
    start, end = memory.data, memory.data + memory.size
    around = [m for m in others if m.data <= start and end <= m.data + m.size]
    return max(around, key=lambda each: each.size)
