"""The instant at which a chain's bytes land: protection checks, verdicts, the copy itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.fabric.memory import Access, Bytes, MemoryRegion, copy_segments, gather, scatter
from sim.fabric.verdicts import (
    LandLate,
    LandPart,
    SendItem,
    WorkRequestItem,
    completion_status,
    refuse,
)
from sim.fabric.work import (
    CompletionStatus,
    Landing,
    Operation,
    Received,
    Segments,
    Send,
    WorkRequestChain,
)
from sim.verdict import Corrupt, Delay, Deliver, Drop, Duplicate, Fail

if TYPE_CHECKING:
    from sim.fabric.queue_pair import QueuePair


def landing_delay_ns(queue_pair: QueuePair, chain: WorkRequestChain) -> int:
    """How long after leaving the wire ``chain`` lands; this is where the rules are asked."""
    if chain.verdict is None:  # a chain that is sent again keeps its fate
        kind = SendItem if isinstance(chain, Send) else WorkRequestItem
        item = kind(chain, queue_pair.pair, queue_pair.number)
        chain.verdict = queue_pair.fabric.verdicts.ask(item)
    profile = queue_pair.fabric.profile
    is_read = chain.operation is Operation.READ
    delay = profile.read_landing_ns if is_read else profile.write_landing_ns
    return delay + chain.verdict.by_ns if isinstance(chain.verdict, Delay) else delay


def execute(queue_pair: QueuePair, chain: WorkRequestChain) -> None:
    """Land ``chain`` as its verdict says, and complete or fail it."""
    if isinstance(chain, Send):
        _receive(queue_pair, chain)
        return
    error = _protection_error(queue_pair, chain)
    if error is not None:
        queue_pair.fail_chain(chain, chain.count - 1, error)
        return
    match chain.verdict:
        case Deliver() | Delay():
            _land(queue_pair, chain, chain.segments)
            queue_pair.complete(chain)
        case Drop():
            queue_pair.fabric.record("work-requests-lost", chain, queue_pair)
        case Corrupt(change=change):
            _land_payload(queue_pair, chain, _payload(queue_pair, chain), change)
            queue_pair.complete(chain)
        case Duplicate(after_ns=after_ns):
            payload = _payload(queue_pair, chain)
            _land_payload(queue_pair, chain, payload)
            _later(queue_pair, chain, after_ns, lambda: _land_payload(queue_pair, chain, payload))
            queue_pair.complete(chain)
        case LandLate(by_ns=by_ns):
            _later(queue_pair, chain, by_ns, lambda: _land(queue_pair, chain, chain.segments))
            queue_pair.complete(chain)
        case LandPart(landed=landed, code=code):
            if landed:
                _land(queue_pair, chain, chain.segments.only(landed))
            missing = next((w for w in range(chain.count) if w not in landed), chain.count - 1)
            queue_pair.fail_chain(chain, missing, completion_status(code))
        case Fail(code=code, message=message):
            status = completion_status(code)
            queue_pair.fail_chain(chain, chain.count - 1, status, message)
        case verdict:
            refuse(WorkRequestItem(chain, queue_pair.pair, queue_pair.number), verdict)


def _receive(queue_pair: QueuePair, send: Send) -> None:
    """Fill a receive of the other end, which has one."""
    match send.verdict:
        case Deliver() | Delay():
            peer = queue_pair.peer
            assert peer is not None
            peer.receives -= 1
            peer.device.notify(Received(send.message, peer.number))
            queue_pair.fabric.record("received", send, queue_pair)
            queue_pair.complete(send)
        case Drop():
            queue_pair.fabric.record("work-requests-lost", send, queue_pair)
        case Fail(code=code, message=message):
            queue_pair.fail_chain(send, 0, completion_status(code), message)
        case verdict:
            refuse(SendItem(send, queue_pair.pair, queue_pair.number), verdict)


def land_prefix(queue_pair: QueuePair, chain: WorkRequestChain, progress: float) -> None:
    """The wire was interrupted: the work requests that were wholly through have landed."""
    through = int(chain.count * progress)
    if isinstance(chain, Send):
        return  # it has arrived or it has not, and then it is sent again
    if through and _protection_error(queue_pair, chain) is None:
        _land(queue_pair, chain, chain.segments.slice(0, through))


def _protection_error(queue_pair: QueuePair, chain: WorkRequestChain) -> CompletionStatus | None:
    is_read = chain.operation is Operation.READ
    if not chain.local.valid or (is_read and not chain.local.allows(Access.LOCAL_WRITE)):
        return CompletionStatus.LOC_PROT
    remote = _remote_region(queue_pair, chain)
    needed = Access.REMOTE_READ if is_read else Access.REMOTE_WRITE
    if remote is None or not remote.allows(needed):
        return CompletionStatus.REM_ACCESS
    return None


def _remote_region(queue_pair: QueuePair, chain: WorkRequestChain) -> MemoryRegion | None:
    assert queue_pair.peer is not None
    return queue_pair.peer.device.region(chain.remote.key)


def _later(
    queue_pair: QueuePair, chain: WorkRequestChain, delay_ns: int, land: Callable[[], None]
) -> None:
    """Land after all, or once more, unless an end or a memory region is gone by then."""

    fabric = queue_pair.fabric
    fabric.late_landings += 1

    def land_if_possible() -> None:
        fabric.late_landings -= 1
        peer = queue_pair.peer
        both_exist = peer is not None and queue_pair.device.alive and peer.device.alive
        if both_exist and _protection_error(queue_pair, chain) is None:
            land()

    fabric.kernel.call_later(delay_ns, land_if_possible)


def _landing(queue_pair: QueuePair, chain: WorkRequestChain, segments: Segments) -> Landing:
    remote = _remote_region(queue_pair, chain)
    assert remote is not None
    assert queue_pair.peer is not None
    ends = (chain.local, segments.local_offsets), (remote, segments.remote_offsets)
    is_read = chain.operation is Operation.READ
    (destination, there), (source, here) = ends if is_read else ends[::-1]
    return Landing(
        queue_pair.device.key,
        queue_pair.peer.device.key,
        chain.operation,
        source,
        here,
        destination,
        there,
        segments.sizes,
        chain.posted_ns,
        chain.transfer_uid,
        queue_pair.number,
    )


def _land(queue_pair: QueuePair, chain: WorkRequestChain, segments: Segments) -> None:
    landing = _landing(queue_pair, chain, segments)
    with queue_pair.fabric.observed(landing):
        copy_segments(
            landing.source.view,
            landing.source_offsets,
            landing.destination.view,
            landing.destination_offsets,
            landing.sizes,
        )
    queue_pair.fabric.record("landed", chain, queue_pair)


def _payload(queue_pair: QueuePair, chain: WorkRequestChain) -> Bytes:
    landing = _landing(queue_pair, chain, chain.segments)
    return gather(landing.source.view, landing.source_offsets, landing.sizes)


def _land_payload(
    queue_pair: QueuePair,
    chain: WorkRequestChain,
    payload: Bytes,
    change: Callable[[Bytes], object] = lambda payload: None,
) -> None:
    change(payload)
    landing = _landing(queue_pair, chain, chain.segments)
    with queue_pair.fabric.observed(landing):
        scatter(payload, landing.destination.view, landing.destination_offsets, landing.sizes)
    queue_pair.fabric.record("landed", chain, queue_pair)
