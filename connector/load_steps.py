"""One load of a consumer rank, moved as far as it can go without waiting.

All decisions are the table's (`core.load`); this finds out what has happened and does what has to
be done. Used by the loader's thread alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connector.batch import Batch
from connector.confirmation import Confirmation
from connector.core.errors import ConnectorError
from connector.core.load import LOAD, Cause, LoadAction, LoadEvent, LoadState
from connector.counters import Counters
from connector.load_results import LoadResults
from connector.loads import Load
from connector.logs import Log, dump, log
from connector.metadata import ReleaseOrder
from connector.peer import Peer
from connector.peer_book import PeerBook
from connector.releaser import Releaser
from connector.transport import (
    ReadState,
    TransportError,
    describe_failure,
    is_queue_full,
    state_of,
)

_LONGEST_BACKOFF_S = 0.05
_SETTLE_S = 1.0  # how much too early the library may tell of reads that are verified and repeated
_SHARE_OF_FIRST = 0.5  # of a load's time; the rest is for its second reads


@dataclass(frozen=True)
class Timeouts:
    """In seconds: of a load, of a fence."""

    transfer_s: float
    fence_s: float


class LoadSteps:
    """Moves the loads of one rank.

    Args:
        peers: to read from.
        confirmation: of what was read.
        releaser: tells producers that we are done.
        results: where loads that have ended are put.
        rank: of tensor parallelism.
        timeouts: of loads.
        counters: of this rank.
    """

    def __init__(
        self,
        peers: PeerBook,
        confirmation: Confirmation,
        releaser: Releaser,
        results: LoadResults,
        rank: int,
        timeouts: Timeouts,
        counters: Counters,
    ) -> None:
        self._peers = peers
        self._confirmation = confirmation
        self._releaser = releaser
        self._results = results
        self._timeouts = timeouts
        self._counters = counters
        self._log = log.bind(role="consumer", half="worker", rank=rank)

    def go_on(self, load: Load, now: float) -> None:
        """Move a load until nothing more has happened to it.

        Whatever goes wrong with one load fails that load and no other.
        """
        try:
            self._move(load, self._event(load, now), now)
        except Exception as error:
            self._fail(load, error, now)

    def _fail(self, load: Load, error: Exception, now: float) -> None:
        """Whatever goes wrong here, too: a load that has ended is reported."""
        load.cause, load.reason = Cause.INTERNAL, repr(error)
        try:
            self._about(load).exception("load-broken", reason=repr(error))
            self._move(load, self._give_up(load, now), now)
        finally:
            if load.has_ended and not load.is_reported:
                self._report(load, is_loaded=False, now=now)

    def _move(self, load: Load, event: LoadEvent | None, now: float) -> None:
        while event is not None:
            move = LOAD(load.state, event)
            load.state = move.state
            self._about(load).debug("load-moved", because=event.name, state=move.state.name)
            for action in move.actions:
                self._do(load, action, now)
            event = None if load.has_ended else self._event(load, now)

    def _give_up(self, load: Load, now: float) -> LoadEvent | None:
        if load.state is LoadState.READING:
            return self._break_off(load, LoadEvent.BROKEN, now)
        if load.state is LoadState.CONFIRMING:
            return self._doubt(load, LoadEvent.TIMED_OUT, now)
        if load.state is LoadState.REPAIRING:
            return LoadEvent.TIMED_OUT
        return LoadEvent.REFUSED if load.state is LoadState.CONNECTING else None

    def close(self) -> None:
        self._confirmation.close()

    # ------------------------------------------------------ what has happened

    def _event(self, load: Load, now: float) -> LoadEvent | None:
        if load.state is LoadState.CONNECTING:
            return self._connect(load, now)
        if load.state is LoadState.READING:
            return self._read(load, now)
        if load.state is LoadState.CONFIRMING:
            return self._confirm(load, now)
        if load.state is LoadState.REPAIRING and now >= load.deadline:
            return LoadEvent.TIMED_OUT
        return None if _may_land(load, now) else LoadEvent.FENCE_DOWN

    def _connect(self, load: Load, now: float) -> LoadEvent | None:
        order = load.order
        try:
            if load.peer is None:
                load.peer = self._peers.source(order.address)
            if not load.is_ready():
                reason = "what was queued on the device before the load did not end"
                return self._timed_out(load, now, Cause.INTERNAL, reason)
            if self._is_connected(load.peer, load, now):
                load.endpoint = load.peer.endpoint
                load.batches = load.peer.batches(order.plan)
                load.is_verified = self._confirmation.verifies(load)
                return LoadEvent.CONNECTED
        except (ConnectorError, ValueError) as error:
            is_ours = isinstance(error, TransportError)
            load.cause = Cause.NO_SESSION if is_ours else Cause.MISMATCH
            load.reason = str(error)
            return LoadEvent.REFUSED
        trouble = load.peer.trouble or "the peer did not answer the handshake"
        return self._timed_out(load, now, Cause.NO_ANSWER, trouble)

    def _is_connected(self, peer: Peer, load: Load, now: float) -> bool:
        order = load.order
        incarnation = order.hold.incarnation if order.hold is not None else None
        if not peer.connect(now, incarnation, since=load.started):
            return False
        self._peers.check_source(peer, order.address)
        self._peers.check_safe(peer, order.hold)
        return peer.open_sessions(order.plan)

    def _read(self, load: Load, now: float) -> LoadEvent | None:
        self._post_again(load, now)
        state = state_of(load.statuses)
        if state is ReadState.DONE and _settles(load, now):
            state = ReadState.IN_FLIGHT
        if state is ReadState.DONE:
            return LoadEvent.SUCCEEDED if load.order.hold is not None else LoadEvent.UNCONFIRMED
        limit = load.deadline
        if _may_read_again(load, now):
            limit -= (1 - _SHARE_OF_FIRST) * self._timeouts.transfer_s
        if state is ReadState.IN_FLIGHT or load.next_at:
            what = "reads did not complete"
            event = self._timed_out(load, now, Cause.READ_TIMED_OUT, what, limit)
        else:
            load.cause, load.reason = Cause.READ_FAILED, describe_failure(load.statuses)
            event = LoadEvent.BROKEN
        if event is None:
            return None
        if _may_read_again(load, now):
            event = LoadEvent.PATH_LOST
        return self._break_off(load, event, now)

    def _break_off(self, load: Load, event: LoadEvent, now: float) -> LoadEvent:
        """Expect nothing more of the reads, and use their queue pairs for no others."""
        assert load.peer is not None
        assert load.endpoint is not None
        load.fence_until = now + self._timeouts.fence_s
        load.settles_at = now + _SETTLE_S
        load.peer.reads_failed(load.endpoint, load.reason)
        return event

    def _confirm(self, load: Load, now: float) -> LoadEvent | None:
        assert load.peer is not None
        event = self._confirmation.go_on(load, now)
        if event is None:
            reason = "the peer did not confirm that it held the blocks"
            event = self._timed_out(load, now, Cause.NOT_CONFIRMED, reason)
        return event if event in (None, LoadEvent.HELD) else self._doubt(load, event, now)

    def _doubt(self, load: Load, event: LoadEvent, now: float) -> LoadEvent:
        """Of a load that is verified the library's word alone does not count."""
        return self._break_off(load, LoadEvent.DOUBTED, now) if load.is_verified else event

    def _timed_out(
        self, load: Load, now: float, cause: Cause, reason: str, limit: float | None = None
    ) -> LoadEvent | None:
        """Whether the load's time is over, or that until ``limit``."""
        limit = load.deadline if limit is None else limit
        if now < limit:
            return None
        load.cause = cause
        load.reason = f"{reason} within {limit - load.started:g} s"
        return LoadEvent.TIMED_OUT

    # ------------------------------------------------------ what has to be done

    def _do(self, load: Load, action: LoadAction, now: float) -> None:
        order = load.order
        if action is LoadAction.POST_READS:
            self._post_all(load)
        elif action is LoadAction.START_OVER:
            load.start_over()
            self._counters.add("repeated_loads")
        elif action is LoadAction.ASK:
            self._confirmation.begin(load)
        elif action is LoadAction.RELEASE:
            self._releaser.release(ReleaseOrder(order.request_id, order.share))
        else:
            self._report(load, is_loaded=action is LoadAction.REPORT_LOADED, now=now)

    def _post_all(self, load: Load) -> None:
        """The library waits for room for each batch, and the loads of all peers with it: so after
        one that found none the others count as refused, too."""
        for batch in load.batches:
            is_full = bool(load.statuses) and is_queue_full(load.statuses[-1])
            load.statuses.append(load.statuses[-1] if is_full else self._post(load, batch))

    def _post_again(self, load: Load, now: float) -> None:
        """Repeat reads that the library had no room for, after a while that grows.

        Over several queue pairs some of a batch may be under way for which others had no room, and
        nobody would hear of its end. That is a failed read like any other.
        """
        assert load.endpoint is not None
        full = _full(load) if load.endpoint.transport.refuses_whole else []
        if not full or now >= load.deadline:
            load.next_at = 0.0
            return
        if load.next_at and now >= load.next_at:
            load.next_at = 0.0
            self._counters.add("queue_full")
            for index in full:
                load.statuses[index] = self._post(load, load.batches[index])
                if is_queue_full(load.statuses[index]):
                    break
            full = _full(load)
        if full and not load.next_at:
            load.next_at = now + load.backoff_s
            load.backoff_s = min(2 * load.backoff_s, _LONGEST_BACKOFF_S)

    def _post(self, load: Load, batch: Batch) -> Any:
        assert load.endpoint is not None
        self._counters.add("reads")
        return load.endpoint.transport.read(batch.session, batch.ours, batch.theirs, batch.sizes)

    def _report(self, load: Load, *, is_loaded: bool, now: float) -> None:
        load.is_reported = True
        try:  # first: the engine may end of the result, and its log has to say why
            self._tell(load, is_loaded=is_loaded, seconds=round(now - load.started, 6))
        finally:
            self._results.add(load.order.request_id, is_loaded=is_loaded)
        self._confirmation.end(load)

    def _tell(self, load: Load, *, is_loaded: bool, seconds: float) -> None:
        about = self._about(load)
        if is_loaded:
            assert load.peer is not None
            assert load.endpoint is not None
            load.peer.reads_succeeded(load.endpoint)
            self._counters.add("loads")
            self._counters.add("loaded_bytes", sum(sum(batch.sizes) for batch in load.batches))
            self._counters.add("verified_loads", int(load.is_verified))
            self._counters.observe("load_seconds", seconds)
            about.debug("loaded", seconds=seconds, verified=load.is_verified)
        else:
            self._counters.add(f"failed_loads:{load.cause}")
            if load.first_reason:
                load.reason += f"; the first reads were given up: {load.first_reason}"
            about.error("load-failed", cause=load.cause, reason=load.reason, seconds=seconds)
            dump(about, load.order.request_id, load.peer.name if load.peer is not None else None)

    def _about(self, load: Load) -> Log:
        order = load.order
        peer = load.peer.name if load.peer is not None else order.address.host
        return self._log.bind(request=order.request_id, transfer=order.transfer_id, peer=peer)


def _full(load: Load) -> list[int]:
    """Which batches found no room in the send queue."""
    return [i for i, status in enumerate(load.statuses) if is_queue_full(status)]


def _may_read_again(load: Load, now: float) -> bool:
    """Once, and only what the producer can be asked about: another may have freed the blocks."""
    needed_s = 2 * _SETTLE_S if load.is_verified else 0.0
    is_first = not load.first_reason and load.order.hold is not None
    return is_first and now + needed_s < load.deadline


def _settles(load: Load, now: float) -> bool:
    """Whether second reads that are verified may still write. The bytes of the first could pass for
    theirs, so not even a digest tells that they have ended."""
    if not (load.is_verified and load.first_reason):
        return False
    load.settles_at = load.settles_at or now + _SETTLE_S
    return now < load.settles_at


def _may_land(load: Load, now: float) -> bool:
    """Whether a read of a load that was given up may still land.

    A failed status does not rule it out: the rest of its work requests may be under way on
    another queue pair, or have been posted before the library refused the others. Nor does one
    that is believed only if the bytes are those of the producer. And of a call that raised nobody
    knows what it had posted: then there are fewer statuses than batches.
    """
    assert load.endpoint is not None
    if load.state is LoadState.REPAIRING and load.is_verified and now < load.settles_at:
        return True
    if load.endpoint.is_quiet or now >= load.fence_until:
        return False
    is_known = len(load.statuses) == len(load.batches)
    return load.is_verified or not is_known or state_of(load.statuses) is not ReadState.DONE
