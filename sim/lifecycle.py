"""Where in its life each request is, as seen from outside: for READ and WRITE, any connector.

A request has a side on a producer and one on a consumer, and each is in one phase or in none: a
consumer may decode while its producer has yet to release, and with WRITE both are busy at once.
What is read_* here is the transfer, whichever side posts it. A request that was retried is where
its latest legs are. Nothing is known of layers: a transfer counts as under way from its first
work request to the landing of the last that was posted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from sim.fabric.work import Landing, Operation, WorkRequestChain
from sim.kernel.log import Record
from sim.oracles.blocks import BlockHistory, Locate
from sim.probes import Probe
from sim.request_ids import leg_kind, logical_id

Phase = Literal[
    "handshake",
    "queued_at_p",
    "prefill",
    "handoff",
    "queued_at_d",
    "allocated",
    "read_posted",
    "read_in_flight",
    "read_done",
    "release",
    "decode",
    "finished",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
OnEntry = Callable[[str, Phase | None], None]

_SUCCESS = ("length", "stop")
_BEFORE_TRANSFER = ("allocated", "handshake")
_TRANSFER = ("read_posted", "read_in_flight", "read_done")


@dataclass(eq=False)
class _Progress:
    """One logical request. ``nodes`` are the engines that got its latest legs."""

    producer: Phase | None = None
    consumer: Phase | None = None
    producer_node: str | None = None
    consumer_node: str | None = None
    holding: dict[str, None] = field(default_factory=dict)
    """Legs that have blocks."""
    legs: dict[str, None] = field(default_factory=dict)
    """All that there have been."""
    posted: int = 0
    landed: int = 0
    ended: bool = False


class Lifecycle(Probe):
    """Follows all requests.

    ``on_entry(request, phase)`` is told of every phase a request enters, and with None when it
    leaves one without entering another.
    """

    def __init__(
        self,
        locate: Locate,
        blocks: BlockHistory,
        machines: Mapping[str, str],
        on_entry: OnEntry,
    ) -> None:
        """``locate`` is MemoryMap's; ``machines`` has the node's name of each engine."""
        self._locate = locate
        self._blocks = blocks
        self._machines = machines
        self._on_entry = on_entry
        self._requests: dict[str, _Progress] = {}
        self._of_transfer: dict[tuple[str, int], tuple[str, ...]] = {}
        self._met: dict[tuple[str | None, str | None], None] = {}
        self._listening: dict[str, None] = {}  # requests of which a message would tell something

    # --------------------------------------------------------------- questions

    def phases_of(self, request: str, node: str | None = None) -> tuple[Phase, ...]:
        """The phases that a request is in, on one engine or on all; () when nothing is left."""
        progress = self._requests.get(request)
        if progress is None:
            return ()
        if progress.ended:
            here = self._has_blocks(progress, node)
            return ("finished",) if here else ()
        sides = (
            (progress.producer_node, progress.producer),
            (progress.consumer_node, progress.consumer),
        )
        return tuple(phase for on, phase in sides if phase and node in (None, on))

    def was_sent_once(self, request: str) -> bool:
        """Whether it had one leg of each kind so far, so that its phases are those of these."""
        progress = self._requests.get(request)
        kinds = [leg_kind(leg) for leg in progress.legs] if progress else []
        return len(kinds) == len(set(kinds))

    def requests_on(self, *nodes: str) -> list[str]:
        """The requests that are in some phase on every one of these engines, in order of arrival.

        A request that waits on one side for the other is on both from its hand-off on.
        """
        return [r for r in self._requests if all(self._is_on(r, node) for node in nodes)]

    def engines_of(self, request: str) -> tuple[str | None, str | None]:
        """The producer and the consumer that its latest legs went to; None where none did yet."""
        progress = self._requests[request]
        return progress.producer_node, progress.consumer_node

    def known(self) -> list[str]:
        """All requests that there have been, in order of arrival."""
        return list(self._requests)

    def under_way(self) -> list[str]:
        """The requests whose clients wait, in order of arrival."""
        return [request for request, progress in self._requests.items() if not progress.ended]

    def requests_of(self, chain: WorkRequestChain) -> tuple[str, ...]:
        """Whose blocks the local side of ``chain`` touches."""
        segments = chain.segments
        return self._owners(chain.local, segments.local_offsets, segments.sizes)

    def _is_on(self, request: str, node: str) -> bool:
        progress = self._requests[request]
        if self.phases_of(request, node) or self._has_blocks(progress, node):
            return True
        return progress.consumer in _BEFORE_TRANSFER and node == progress.producer_node

    @staticmethod
    def _has_blocks(progress: _Progress, node: str | None) -> bool:
        by_kind = {"p": progress.producer_node, "d": progress.consumer_node}
        nodes = [
            by_kind.get(leg_kind(leg) or "", progress.producer_node) for leg in progress.holding
        ]
        return bool(nodes) if node is None else node in nodes

    def _owners(self, region: Any, offsets: Any, sizes: Any) -> tuple[str, ...]:
        found = self._locate(region, offsets, sizes)
        if found is None:
            return ()
        worker, touched = found
        blocks = self._blocks.node(worker.engine.name)
        legs = blocks.owners_among(touched.blocks)
        return tuple(dict.fromkeys(map(logical_id, legs)))

    # -------------------------------------------------------------- transitions

    def on_record(self, record: Record) -> None:
        """Observe the event log: what the router and the network do."""
        fields = record.fields
        match record.kind:
            case "leg-sent":
                self._leg_sent(fields["request"], fields["leg"], fields["node"])
            case "leg-finished":
                if leg_kind(fields["leg"]) == "p" and fields["outcome"] in _SUCCESS:
                    self._prefilled(fields["request"])
            case "message-sent":
                self._message(_machine(fields["source"]), _machine(fields["target"]))

    def engine_started(self, engine: Any) -> None:
        """Its peers have to meet it again."""
        self._met = {ends: None for ends in self._met if engine.name not in ends}

    def request_started(self, request_id: str) -> None:
        self._requests[request_id] = _Progress()

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self._requests[request_id].ended = True
        self._listening.pop(request_id, None)
        self._on_entry(request_id, "finished")

    def _leg_sent(self, request: str, leg: str, node: str) -> None:
        progress = self._requests[request]
        progress.legs[leg] = None
        if leg_kind(leg) == "d":
            progress.consumer_node = node
            progress.posted = progress.landed = 0
            if progress.producer == "handoff":
                progress.producer = None
            self._enter_consumer(request, "queued_at_d")
        else:
            progress.producer_node = node
            if progress.consumer is None:
                progress.consumer_node = None  # nobody knows of this attempt yet
            self._enter_producer(request, "queued_at_p")

    def _prefilled(self, request: str) -> None:
        """With WRITE the consumer was told at the beginning, and may have no blocks any more."""
        is_told = self._requests[request].consumer_node is not None
        self._enter_producer(request, "release" if is_told else "handoff")

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        progress = self._requests.get(logical_id(request_id))
        if progress is None:
            return
        progress.holding[request_id] = None
        if leg_kind(request_id) == "d" and progress.consumer in ("queued_at_d", None):
            self._enter_consumer(logical_id(request_id), "allocated")
        elif leg_kind(request_id) != "d" and progress.producer == "queued_at_p":
            self._enter_producer(logical_id(request_id), "prefill")

    def blocks_freed(self, node: str, request_id: str) -> None:
        progress = self._requests.get(logical_id(request_id))
        if progress is None:
            return
        progress.holding.pop(request_id, None)
        if leg_kind(request_id) == "p" and progress.producer in ("handoff", "release"):
            progress.producer = None
            self._on_entry(logical_id(request_id), None)
        elif leg_kind(request_id) == "d":  # it ends, or was preempted and will be back
            progress.consumer = None
            self._on_entry(logical_id(request_id), None)

    def _message(self, source: str, target: str) -> None:
        """The first talk of two machines that have had no transfer yet is a handshake, and a
        message to the producer when all has landed a release."""
        for request in list(self._listening):
            progress = self._requests[request]
            ends = (progress.producer_node, progress.consumer_node)
            producer, consumer = (self._machines.get(node or "") for node in ends)
            if progress.consumer == "allocated":
                if ends not in self._met and {source, target} == {producer, consumer}:
                    self._enter_consumer(request, "handshake")
            elif (source, target) == (consumer, producer):
                self._begin_release(request)

    def posted(self, initiator: str, chain: WorkRequestChain) -> None:
        """The fabric got work requests of an engine, which it knows as ``initiator``."""
        requests = self.requests_of(chain)
        self._of_transfer[initiator, chain.transfer_uid] = requests
        for request in requests:
            progress = self._requests.get(request)
            if progress is None or progress.ended:
                continue
            progress.posted += 1
            self._met[progress.producer_node, progress.consumer_node] = None
            if progress.consumer not in _TRANSFER:
                self._enter_consumer(request, "read_posted")
            elif progress.consumer == "read_done":
                self._enter_consumer(request, "read_in_flight")

    def after_landing(self, landing: Landing) -> None:
        requests = self._of_transfer.get((landing.initiator, landing.transfer_uid))
        if requests is None:  # a copy between GPUs, which nobody posts to a queue pair
            is_read = landing.operation is Operation.READ
            requests = self._owners(
                landing.destination if is_read else landing.source,
                landing.destination_offsets if is_read else landing.source_offsets,
                landing.sizes,
            )
        for request in requests:
            self._landed(request)

    def _landed(self, request: str) -> None:
        progress = self._requests.get(request)
        if progress is None or progress.ended:
            return
        progress.landed += 1
        if progress.landed < progress.posted:
            if progress.consumer == "read_posted":
                self._enter_consumer(request, "read_in_flight")
        elif progress.consumer in (*_BEFORE_TRANSFER, "read_posted", "read_in_flight"):
            self._enter_consumer(request, "read_done")

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        request = logical_id(request_id)
        progress = self._requests.get(request)
        if progress is None or leg_kind(request_id) != "d":
            return
        if progress.consumer not in ("decode", "read_posted", "read_in_flight"):
            if progress.consumer == "read_done":
                self._begin_release(request)
            self._enter_consumer(request, "decode")

    def _begin_release(self, request: str) -> None:
        progress = self._requests[request]
        if progress.producer is None and any(leg_kind(leg) == "p" for leg in progress.holding):
            self._enter_producer(request, "release")

    def _enter_producer(self, request: str, phase: Phase) -> None:
        self._requests[request].producer = phase
        self._on_entry(request, phase)

    def _enter_consumer(self, request: str, phase: Phase) -> None:
        self._requests[request].consumer = phase
        if phase in ("allocated", "read_done"):
            self._listening[request] = None
        else:
            self._listening.pop(request, None)
        self._on_entry(request, phase)


def _machine(process: str) -> str:
    return process.partition("/")[0]
