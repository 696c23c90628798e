"""What a space-time diagram shows of a run: the records about its focus, as dots and arrows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from faults.grouping import group
from faults.report.focus import Focus
from faults.report.lanes import (
    FAULTS,
    ROUTER,
    Lane,
    engine_lane,
    process_lane,
    rank_lane,
)
from faults.report.transfers import Transfers
from faults.story.names import said, without_addresses
from sim.kernel.log import Record
from sim.oracles import Violation
from sim.oracles.blocks import NULL_BLOCK
from sim.oracles.words import block_list
from sim.request_ids import leg_of
from sim.units import seconds_to_ns

MAX_HAPPENINGS = 80
_LOUD = ("WARNING", "ERROR", "CRITICAL")


@dataclass
class Happening:
    """A dot on ``lane`` at a time, or an arrow to another lane and, mostly, a later time.

    ``end_ns`` is None for an arrow whose end was never seen. Those of the lowest ``weight`` are
    left out first. ``style`` is a class of the style sheet.
    """

    time_ns: int
    lane: Lane
    text: str
    weight: int
    style: str = ""
    to: Lane | None = None
    end_ns: int | None = None
    end_text: str = ""


def happenings(records: Sequence[Record], focus: Focus) -> tuple[list[Happening], int]:
    """In order of time, at most MAX_HAPPENINGS, and how many more there were."""
    found = _Finder(focus).find(records)
    moment_ns = focus.until_ns
    by_worth = sorted(found, key=lambda h: (-h.weight, abs(moment_ns - h.time_ns)))
    kept = {id(happening) for happening in by_worth[:MAX_HAPPENINGS]}
    shown = sorted((h for h in found if id(h) in kept), key=lambda h: h.time_ns)
    return shown, len(found) - len(shown)


class _Finder:
    def __init__(self, focus: Focus) -> None:
        self._focus = focus
        self._found: list[Happening] = []
        self._given: dict[tuple[int, str, str], tuple[Happening, list[int]]] = {}
        self._messages: dict[tuple[object, ...], list[Happening]] = {}
        self._listeners: dict[str, Callable[[Record], None]] = {
            "request-arrived": self._at_router,
            "request-ended": self._at_router,
            "request-retried": self._at_router,
            "hand-off-held": self._at_router,
            "hand-off-lost": self._at_router,
            "leg-sent": self._leg_sent,
            "leg-finished": self._leg_finished,
            "blocks-held": self._blocks_held,
            "blocks-freed": self._blocks_freed,
            "forward-began": self._forward_began,
            "sending-finished": self._on_rank,
            "receiving-finished": self._on_rank,
            "engine-died": self._engine,
            "fault-hit": self._fault_hit,
            "process-crashed": self._process,
            "process-paused": self._process,
            "process-resumed": self._process,
            "log": self._log,
            "message-sent": self._message_sent,
            "message-delivered": self._message_delivered,
        }

    def find(self, records: Sequence[Record]) -> list[Happening]:
        for record in records:
            listener = self._listeners.get(record.kind)
            if listener is not None and self._focus.is_within(record):
                listener(record)
        for transfer in Transfers(records, self._focus).batches():
            self._found.append(
                Happening(
                    transfer.first_ns,
                    transfer.source,
                    transfer.told,
                    8 if transfer.is_wrong else 3,
                    "wrong" if transfer.is_wrong else "transfer",
                    transfer.target,
                    transfer.landed_ns,
                    transfer.landed_told,
                )
            )
        for time_ns, block, writer, node, rank in self._focus.overwritten:
            told = f"block {block} is written to by {writer}, after the transfer into it"
            self._add(time_ns, rank_lane(node, rank), told, 8, "wrong")
        for finding in group(self._focus.violations):
            self._violation(finding.violations[0], finding.sentence)
        return self._found

    def _add(self, time_ns: int, lane: Lane, text: str, weight: int, style: str = "") -> None:
        self._found.append(Happening(time_ns, lane, text, weight, style))

    def _violation(self, violation: Violation, sentence: str) -> None:
        lane = ROUTER
        if violation.node is not None:
            rank = violation.evidence.get("rank")
            node = violation.node
            lane = engine_lane(node) if rank is None else rank_lane(node, int(rank))
        time_ns = seconds_to_ns(violation.time_s)
        self._add(time_ns, lane, f"{violation.oracle}: {sentence}", 9, "violation")

    # ------------------------------------------------------- router and engines

    def _at_router(self, record: Record) -> None:
        fields = record.fields
        if self._focus.is_about(fields["request"]):
            told = f"{fields['request']}: {record.kind.replace('-', ' ')}"
            told += f", {fields['outcome']}" if "outcome" in fields else ""
            told += f" for {fields['seconds']:g} s" if "seconds" in fields else ""
            self._add(record.time_ns, ROUTER, told, 6)

    def _leg_sent(self, record: Record) -> None:
        fields = record.fields
        if self._focus.is_about(fields["leg"]):
            told = f"{fields['leg']} is sent to {fields['node']}"
            self._leg(record, ROUTER, engine_lane(fields["node"]), told)

    def _leg_finished(self, record: Record) -> None:
        fields = record.fields
        if self._focus.is_about(fields["leg"]):
            told = f"{fields['leg']} ends on {fields['node']}: {fields['outcome']}"
            self._leg(record, engine_lane(fields["node"]), ROUTER, told)

    def _leg(self, record: Record, lane: Lane, to: Lane, told: str) -> None:
        time_ns = record.time_ns
        self._found.append(Happening(time_ns, lane, told, 5, "leg", to, time_ns))

    def _blocks_held(self, record: Record) -> None:
        fields = record.fields
        if self._focus.is_about(fields["request"]):
            ids = [i for a, b in fields["blocks"] for i in range(a, b + 1) if i != NULL_BLOCK]
            if ids:
                self._give(record.time_ns, fields["node"], fields["request"], ids)

    def _give(self, time_ns: int, node: str, request: str, ids: list[int]) -> None:
        """The groups of a request get theirs one by one, and are told together."""
        key = (time_ns, node, request)
        if key not in self._given:
            self._add(time_ns, engine_lane(node), "", 6)
            self._given[key] = (self._found[-1], [])
        happening, blocks = self._given[key]
        blocks += ids
        happening.text = f"{node} gives {block_list(blocks)} to {leg_of(request)}"

    def _blocks_freed(self, record: Record) -> None:
        node, request = record.fields["node"], record.fields["request"]
        if self._focus.is_about(request):
            told = f"{node} lets go of the blocks of {leg_of(request)}"
            self._add(record.time_ns, engine_lane(node), told, 6)

    def _forward_began(self, record: Record) -> None:
        fields = record.fields
        legs = [leg_of(leg) for leg, *_ in fields["requests"] if self._focus.is_about(leg)]
        if legs:
            lane = rank_lane(fields["node"], fields["rank"])
            told = f"{fields['node']} rank {fields['rank']}: forward pass of {', '.join(legs)}"
            self._add(record.time_ns, lane, told, 4, "forward")

    def _on_rank(self, record: Record) -> None:
        fields = record.fields
        if self._focus.is_about(fields["request"]):
            lane = rank_lane(fields["node"], fields["rank"])
            told = f"{record.kind.replace('-', ' ')} for {leg_of(fields['request'])}"
            self._add(record.time_ns, lane, told, 4)

    def _engine(self, record: Record) -> None:
        node = record.fields["node"]
        if node in self._focus.nodes:
            told = f"{node} died: {record.fields['reason']}"
            self._add(record.time_ns, engine_lane(node), told, 8, "fault")

    def _process(self, record: Record) -> None:
        process = record.fields["process"]
        told = f"{process}: {record.kind.partition('-')[2]}"
        self._on_lane(record, process_lane(process), told, 7, "fault")

    def _log(self, record: Record) -> None:
        level = record.fields["level"]
        message = said(str(record.fields["message"])) if level in _LOUD else None
        if message is not None:
            told = f"{level.lower()}: {without_addresses(message)}"
            self._on_lane(record, process_lane(record.actor), told, 2, "log")

    def _on_lane(self, record: Record, lane: Lane, told: str, weight: int, style: str) -> None:
        if lane.engine in self._focus.nodes:
            self._add(record.time_ns, lane, told, weight, style)

    def _fault_hit(self, record: Record) -> None:
        fields = record.fields
        reached = [
            f"{request} ({', '.join(phases) or 'in no phase'})"
            for request, phases in fields["requests"].items()
        ]
        told = f"{fields['fault_kind']} reaches {', '.join(reached[:3]) or 'no request'}"
        self._add(record.time_ns, FAULTS, told, 8, "fault")

    # ------------------------------------------------------------------ messages

    def _message_sent(self, record: Record) -> None:
        fields = record.fields
        lanes = process_lane(fields["source"]), process_lane(fields["target"])
        if any(lane.engine not in self._focus.nodes for lane in lanes) or lanes[0] == lanes[1]:
            return
        told = f"message from {fields['source']} to {fields['target']}, {fields['bytes']} bytes"
        sent = Happening(record.time_ns, lanes[0], told, 2, "message", lanes[1])
        self._found.append(sent)
        self._messages.setdefault(_message(record), []).append(sent)

    def _message_delivered(self, record: Record) -> None:
        if waiting := self._messages.get(_message(record)):
            waiting.pop(0).end_ns = record.time_ns


def _message(record: Record) -> tuple[object, ...]:
    return tuple(record.fields[key] for key in ("source", "target", "port", "digest"))
