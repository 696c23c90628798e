"""A consumer rank's transfers: one thread that takes every load from its order to its report.

The thread never waits for one peer: it goes round its loads and moves each as far as it can. All
decisions are the table's (`core.load`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import zmq

from connector.core.errors import ConnectorError
from connector.core.load import LOAD, LoadAction, LoadEvent, LoadState
from connector.core.ranks import source_rank
from connector.counters import Counters
from connector.endpoint import Endpoint
from connector.logs import log, recent
from connector.metadata import LoadOrder, ReleaseOrder
from connector.peer import Batch, Peer
from connector.releaser import Releaser
from connector.transport import ReadState, describe_failure, is_queue_full, state_of

_SHORTEST_TICK_S = 0.001
_LONGEST_TICK_S = 0.05
_TICKS_OF_AGE = 0.02  # a load that has lasted long is looked at more rarely
_FIRST_BACKOFF_S = 0.001
_LONGEST_BACKOFF_S = 0.05

MakePeer = Callable[[str, int], Peer]
IsReady = Callable[[], bool]
"""Whether what was queued on the device before a load's order is done."""


@dataclass
class _Load:
    order: LoadOrder
    is_ready: IsReady
    started: float
    deadline: float
    state: LoadState = LoadState.CONNECTING
    peer: Peer | None = None
    endpoint: Endpoint | None = None
    batches: list[Batch] = field(default_factory=list)
    statuses: list[Any] = field(default_factory=list)
    backoff_s: float = _FIRST_BACKOFF_S
    next_at: float = 0.0
    fence_until: float = 0.0
    question: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Timeouts:
    """In seconds: of a load, of a fence, of one answer."""

    transfer_s: float
    fence_s: float
    control_s: float


class Loader:
    """Runs the loads of one rank.

    Args:
        make_peer: for a host and a handshake port.
        releaser: tells producers that we are done.
        rank: of tensor parallelism.
        tp_size: of this engine.
        timeouts: of loads.
        requires_safe_reads: whether peers are refused that cannot confirm their hold.
        counters: of this rank.
    """

    def __init__(
        self,
        make_peer: MakePeer,
        releaser: Releaser,
        rank: int,
        tp_size: int,
        timeouts: Timeouts,
        counters: Counters,
        *,
        requires_safe_reads: bool,
    ) -> None:
        self._make_peer = make_peer
        self._releaser = releaser
        self._rank = rank
        self._tp_size = tp_size
        self._timeouts = timeouts
        self._counters = counters
        self._requires_safe_reads = requires_safe_reads
        self._orders: queue.Queue[_Load | ReleaseOrder | None] = queue.Queue()
        self._peers: dict[tuple[str, int], Peer] = {}
        self._unsafe_peers: dict[str, None] = {}
        self._loads: list[_Load] = []
        self._questions = 0
        self._finished = threading.Condition()
        self._loaded: set[str] = set()
        self._failed: set[str] = set()
        self._log = log.bind(role="consumer", half="worker", rank=rank)
        self._thread = threading.Thread(target=self._run, daemon=True, name="hybrid-loader")
        self._thread.start()

    # -------------------------------------------------- called by the worker

    def start(self, order: LoadOrder, is_ready: IsReady) -> None:
        """Begin a load once ``is_ready`` says so."""
        now = time.monotonic()
        self._orders.put(_Load(order, is_ready, now, now + self._timeouts.transfer_s))

    def release(self, order: ReleaseOrder) -> None:
        self._orders.put(order)

    def take_results(self) -> tuple[set[str], set[str]]:
        """Loads that have ended since the last call: all of them, and those that failed."""
        with self._finished:
            loaded, self._loaded = self._loaded, set()
            failed, self._failed = self._failed, set()
        return loaded | failed, failed

    def wait(self, request_ids: Iterable[str], timeout_s: float) -> tuple[set[str], set[str]]:
        """Wait for the end of loads and take their results: (loaded, failed).

        What is in neither has not ended by then; its reads may still land.
        """
        wanted = set(request_ids)
        with self._finished:
            self._finished.wait_for(
                lambda: wanted <= (self._loaded | self._failed), timeout=timeout_s
            )
            loaded, failed = self._loaded & wanted, self._failed & wanted
            self._loaded -= wanted
            self._failed -= wanted
        return loaded, failed

    def close(self) -> None:
        self._orders.put(None)
        self._thread.join(timeout=1)

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        while self._take_orders():
            now = time.monotonic()
            for peer in self._peers.values():
                self._receive(peer)
            for load in self._loads:
                self._go_on(load, now)
            self._loads = [load for load in self._loads if load.state not in LOAD.final]
            self._rest()
        for peer in self._peers.values():
            peer.close()
        self._releaser.close()

    def _take_orders(self) -> bool:
        """Take what has been ordered; with nothing to do, wait for it. False at the end."""
        while True:
            try:
                order = self._orders.get(block=not self._loads)
            except queue.Empty:
                return True
            if order is None:
                return False
            if isinstance(order, ReleaseOrder):
                self._releaser.release(order)
            else:
                self._loads.append(order)

    def _rest(self) -> None:
        """Until an answer arrives, or for a moment."""
        if not self._loads:
            return
        poller = zmq.Poller()
        for load in self._loads:
            for socket in load.peer.sockets if load.peer is not None else ():
                poller.register(socket, zmq.POLLIN)
        youngest = time.monotonic() - max(load.started for load in self._loads)
        tick = min(max(_TICKS_OF_AGE * youngest, _SHORTEST_TICK_S), _LONGEST_TICK_S)
        poller.poll(int(tick * 1000))

    def _receive(self, peer: Peer) -> None:
        try:
            peer.receive_answers()
        except ConnectorError as error:
            self._counters.add("malformed_messages")
            self._log.warning("message-dropped", peer=peer.name, reason=str(error))

    def _go_on(self, load: _Load, now: float) -> None:
        event = self._event(load, now)
        while event is not None:
            move = LOAD(load.state, event)
            load.state = move.state
            for action in move.actions:
                self._do(load, action, now)
            event = self._event(load, now) if move.state not in LOAD.final else None

    # ------------------------------------------------------ what has happened

    def _event(self, load: _Load, now: float) -> LoadEvent | None:
        if load.state is LoadState.CONNECTING:
            return self._connect(load, now)
        if load.state is LoadState.READING:
            return self._read(load, now)
        if load.state is LoadState.CONFIRMING:
            return self._confirm(load, now)
        fenced = state_of(load.statuses) is ReadState.IN_FLIGHT and now < load.fence_until
        return None if fenced else LoadEvent.FENCE_DOWN

    def _connect(self, load: _Load, now: float) -> LoadEvent | None:
        order = load.order
        try:
            if load.peer is None:
                load.peer = self._peer_of(order)
            incarnation = order.hold.incarnation if order.hold is not None else None
            if load.is_ready() and load.peer.connect(now, incarnation):
                self._check_safe(load.peer)
                load.endpoint = load.peer.endpoint
                load.batches = load.peer.batches(order.plan)
                return LoadEvent.CONNECTED
        except (ConnectorError, ValueError) as error:
            load.reason = str(error)
            return LoadEvent.REFUSED
        return self._timed_out(load, now, "the peer did not answer the handshake")

    def _read(self, load: _Load, now: float) -> LoadEvent | None:
        self._post_again(load, now)
        state = state_of(load.statuses)
        if state is ReadState.IN_FLIGHT or load.next_at:
            event = self._timed_out(load, now, "reads did not complete")
            if event is not None:
                load.fence_until = now + self._timeouts.fence_s
            return event
        if state is ReadState.DONE:
            return LoadEvent.SUCCEEDED if load.order.hold is not None else LoadEvent.UNCONFIRMED
        load.reason = describe_failure(load.statuses)
        self._renew(load)
        return LoadEvent.BROKEN

    def _confirm(self, load: _Load, now: float) -> LoadEvent | None:
        assert load.peer is not None
        is_held = load.peer.answers.pop(load.question, None)
        if is_held is not None:
            load.reason = "" if is_held else "the producer no longer holds the blocks"
            return LoadEvent.HELD if is_held else LoadEvent.GONE
        if now >= load.next_at:
            self._ask(load, now)
        return self._timed_out(load, now, "the peer did not confirm that it held the blocks")

    def _timed_out(self, load: _Load, now: float, reason: str) -> LoadEvent | None:
        if now < load.deadline:
            return None
        load.reason = f"{reason} within {self._timeouts.transfer_s:g} s"
        return LoadEvent.TIMED_OUT

    # ------------------------------------------------------ what has to be done

    def _do(self, load: _Load, action: LoadAction, now: float) -> None:
        order = load.order
        if action is LoadAction.POST_READS:
            load.statuses = [_post(load, batch) for batch in load.batches]
        elif action is LoadAction.ASK:
            self._questions += 1
            load.question = self._questions
            self._ask(load, now)
        elif action is LoadAction.RELEASE:
            self._releaser.release(ReleaseOrder(order.transfer_id, order.address, order.hold))
        else:
            self._report(load, is_loaded=action is LoadAction.REPORT_LOADED, now=now)

    def _post_again(self, load: _Load, now: float) -> None:
        """Repeat reads that the library had no room for, after a while that grows."""
        full = [i for i, status in enumerate(load.statuses) if is_queue_full(status)]
        if not full or now >= load.deadline:
            load.next_at = 0.0
            return
        if not load.next_at:
            load.next_at = now + load.backoff_s
            load.backoff_s = min(2 * load.backoff_s, _LONGEST_BACKOFF_S)
        if now >= load.next_at:
            load.next_at = 0.0
            self._counters.add("queue_full")
            for index in full:
                load.statuses[index] = _post(load, load.batches[index])

    def _ask(self, load: _Load, now: float) -> None:
        assert load.peer is not None
        assert load.order.hold is not None
        load.peer.ask(load.order.hold, load.question)
        load.next_at = now + self._timeouts.control_s

    def _report(self, load: _Load, *, is_loaded: bool, now: float) -> None:
        order = load.order
        about = {"request": order.request_id, "transfer": order.transfer_id}
        peer = load.peer.name if load.peer is not None else order.address.host
        if is_loaded:
            self._counters.add("loads")
            self._log.debug("loaded", **about, peer=peer, seconds=round(now - load.started, 6))
        else:
            self._counters.add("failed_loads")
            before = recent(request=order.request_id)
            self._log.error("load-failed", **about, peer=peer, reason=load.reason, before=before)
        with self._finished:
            (self._loaded if is_loaded else self._failed).add(order.request_id)
            self._finished.notify_all()

    # ------------------------------------------------------------------- peers

    def _peer_of(self, order: LoadOrder) -> Peer:
        address = order.address
        rank = source_rank(self._rank, self._tp_size, address.tp_size)
        key = (address.host, address.port_of(address.handshake_port, rank))
        if key not in self._peers:
            self._peers[key] = self._make_peer(*key)
        return self._peers[key]

    def _renew(self, load: _Load) -> None:
        """Give the peer new connections, once for all the loads that the old ones failed."""
        peer = load.peer
        assert peer is not None
        if peer.endpoint is not load.endpoint:
            return
        try:
            peer.renew()
            self._counters.add("renewed_connections")
            self._log.warning("connections-renewed", peer=peer.name, reason=load.reason)
        except ConnectorError as error:
            self._log.error("connections-not-renewed", peer=peer.name, reason=str(error))

    def _check_safe(self, peer: Peer) -> None:
        assert peer.welcome is not None
        if peer.welcome.incarnation is not None or peer.name in self._unsafe_peers:
            return
        if self._requires_safe_reads:
            raise ConnectorError(
                f"{peer.name} cannot confirm that it holds blocks while they are read, and "
                "require_safe_reads is set"
            )
        self._unsafe_peers[peer.name] = None
        self._counters.add("unprotected_peers")
        self._log.warning(
            "peer-unprotected",
            peer=peer.name,
            reason="it runs another connector, which may free blocks while they are read",
        )


def _post(load: _Load, batch: Batch) -> Any:
    assert load.endpoint is not None
    return load.endpoint.transport.read(batch.session, batch.ours, batch.theirs, batch.sizes)
