"""From the records of an event log to the events of a trace."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from faults.trace.counts import Counts
from faults.trace.events import (
    AnyEvent,
    Begin,
    Counter,
    End,
    FlowEnd,
    FlowStart,
    Instant,
    Slice,
    Trace,
)
from faults.trace.lanes import Lane, Lanes
from sim.request_ids import leg_of

Record = dict[str, Any]  # as events.jsonl has it

# What happens in an instant is given a width, so that flows have a slice to bind to. It is one tick
# of the virtual clock, so that slices of a lane never overlap in part.
_SHORT_US = 0.001
_PLACES = ("t_ns", "actor", "kind")


def build(records: Iterable[Record], *, num_blocks: int | None, about: dict[str, str]) -> Trace:
    """The trace of a run.

    Args:
        records: the event log, in order of time.
        num_blocks: size of every engine's pool; if it is not known, only held blocks are counted.
        about: what the file says about itself.
    """
    return _Builder(num_blocks).build(records, about)


class _Builder:
    def __init__(self, num_blocks: int | None) -> None:
        self._events: list[AnyEvent] = []
        self._lanes = Lanes()
        self._counts = Counts(num_blocks)
        self._open: dict[tuple[str, str], Begin] = {}
        self._flows = 0
        self._messages: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
        self._posts: dict[tuple[Any, ...], deque[tuple[str, str]]] = defaultdict(deque)
        self._landings: dict[tuple[Any, ...], deque[tuple[str, int]]] = defaultdict(deque)
        self._now = 0.0
        self._listeners: dict[str, Callable[[Record], None]] = {
            "request-arrived": self._request_arrived,
            "request-ended": self._request_ended,
            "leg-sent": self._leg_sent,
            "leg-finished": self._leg_finished,
            "blocks-held": self._blocks_held,
            "blocks-freed": self._blocks_freed,
            "engine-started": self._engine_started,
            "forward-began": self._on_rank,
            "receiving-finished": self._on_rank,
            "sending-finished": self._on_rank,
            "message-sent": self._message_sent,
            "message-delivered": self._message_delivered,
            "posted": self._posted,
            "landed": self._landed,
            "completion": self._completion,
            "completion-lost": self._completion,
        }

    def build(self, records: Iterable[Record], about: dict[str, str]) -> Trace:
        for record in records:
            self._now = record["t_ns"] / 1000
            self._listeners.get(record["kind"], self._on_actor)(record)
        for key in list(self._open):
            self._end(*key, outcome="never ended")
        return Trace(traceEvents=[*self._lanes.names(), *self._events], otherData=about)

    # ------------------------------------------------------------- in general

    def _at(self, lane: Lane, name: str, cat: str) -> dict[str, Any]:
        return {"name": name, "cat": cat, "pid": lane[0], "tid": lane[1], "ts": self._now}

    def _on_actor(self, record: Record) -> None:
        lane = self._lanes.of_actor(record["actor"])
        self._events.append(Instant(**self._at(lane, _title(record), "event"), args=_args(record)))

    def _on_rank(self, record: Record) -> None:
        lane = self._lanes.of_rank(record["node"], record["rank"])
        self._events.append(Instant(**self._at(lane, _title(record), "rank"), args=_args(record)))

    def _slice(self, lane: Lane, name: str, cat: str, record: Record) -> None:
        self._events.append(Slice(**self._at(lane, name, cat), dur=_SHORT_US, args=_args(record)))

    def _begin(self, lane: Lane, what: str, name: str, record: Record) -> None:
        begin = Begin(**self._at(lane, name, what), id=f"{what} {name}", args=_args(record))
        self._open[what, name] = begin
        self._events.append(begin)

    def _end(self, what: str, name: str, **args: Any) -> None:
        begin = self._open.pop((what, name), None)
        if begin is not None:
            lane = (begin.pid, begin.tid)
            self._events.append(End(**self._at(lane, name, what), id=begin.id, args=args))

    def _count(self, node: str, name: str, values: dict[str, int]) -> None:
        lane = self._lanes.of(f"engine {node}", "counters")
        self._events.append(Counter(**self._at(lane, f"{name} of {node}", "counter"), args=values))

    def _flow(self, lane: Lane, name: str) -> int:
        self._flows += 1
        self._events.append(FlowStart(**self._at(lane, name, "flow"), id=self._flows))
        return self._flows

    def _arrive(self, lane: Lane, name: str, flow: int) -> None:
        self._events.append(FlowEnd(**self._at(lane, name, "flow"), id=flow))

    # ---------------------------------------------------- requests and blocks

    def _request_arrived(self, record: Record) -> None:
        self._begin(self._lanes.of("router", "requests"), "request", record["request"], record)

    def _request_ended(self, record: Record) -> None:
        self._end("request", record["request"], outcome=record["outcome"])

    def _leg_sent(self, record: Record) -> None:
        node = record["node"]
        self._begin(self._lanes.of(f"engine {node}", "requests"), "leg", record["leg"], record)
        self._count(node, "requests", self._counts.leg(node, record["leg"], is_open=True))

    def _leg_finished(self, record: Record) -> None:
        self._end("leg", record["leg"], outcome=record["outcome"])
        node = record["node"]
        self._count(node, "requests", self._counts.leg(node, record["leg"], is_open=False))

    def _blocks_held(self, record: Record) -> None:
        node, leg = record["node"], leg_of(record["request"])
        if ("blocks", leg) not in self._open:
            self._begin(self._lanes.of(f"engine {node}", "blocks held"), "blocks", leg, record)
        self._count(node, "blocks", self._counts.held(record))
        self._count(node, "requests", self._counts.queue(node))

    def _blocks_freed(self, record: Record) -> None:
        node = record["node"]
        self._end("blocks", leg_of(record["request"]))
        self._count(node, "blocks", self._counts.freed(record))
        self._count(node, "requests", self._counts.queue(node))

    def _engine_started(self, record: Record) -> None:
        self._on_actor(record)
        self._count(record["node"], "blocks", self._counts.restarted(record["node"]))

    # ------------------------------------------------ messages and transfers

    def _message_sent(self, record: Record) -> None:
        lane = self._lanes.of(*_process(record["source"]))
        name = f"message to port {record['port']}"
        self._slice(lane, name, "message", record)
        self._messages[_message(record)].append(self._flow(lane, name))

    def _message_delivered(self, record: Record) -> None:
        lane = self._lanes.of(*_process(record["target"]))
        name = f"message to port {record['port']}"
        self._slice(lane, name, "message", record)
        if waiting := self._messages[_message(record)]:
            self._arrive(lane, name, waiting.popleft())

    def _posted(self, record: Record) -> None:
        node = record["actor"].partition("/")[0]
        name = _transfer_name(record)
        lane = self._lanes.of_actor(record["actor"])
        self._slice(lane, f"posts {name}", "transfer", record)
        flow = self._flow(lane, name)
        number = f"{name} ({flow})"
        self._begin(self._lanes.of_card(node), "transfer", number, record)
        self._posts[_transfer(record)].append((node, number))
        self._landings[_transfer(record)].append((node, flow))
        self._count(node, "transfers", self._counts.transfer(node, 1))

    def _landed(self, record: Record) -> None:
        if not (flows := self._landings[_transfer(record)]):
            self._on_actor(record)
            return
        node, flow = flows.popleft()
        lane = self._lanes.of_card(node)
        self._slice(lane, f"{_transfer_name(record)} landed", "transfer", record)
        self._arrive(lane, _transfer_name(record), flow)

    def _completion(self, record: Record) -> None:
        """A completion ends the oldest transfer of its number that is open."""
        if not (posts := self._posts[_transfer(record)]):
            self._on_actor(record)
            return
        node, number = posts.popleft()
        self._end("transfer", number, status=record.get("status", "lost"))
        self._count(node, "transfers", self._counts.transfer(node, -1))


def _args(record: Record) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in _PLACES}


def _title(record: Record) -> str:
    """The kind, with what tells two of them apart."""
    subject = record.get("fault_kind") or record.get("request") or record.get("oracle")
    return f"{record['kind']} {leg_of(str(subject))}" if subject else str(record["kind"])


def _process(process: str) -> Iterator[str]:
    node, _, rest = process.partition("/")
    yield f"engine {node}"
    yield f"{rest or 'process'} messages"


def _message(record: Record) -> tuple[Any, ...]:
    return record["source"], record["target"], record["port"], record["digest"]


def _transfer(record: Record) -> tuple[Any, ...]:
    keys = ("initiator", "target", "operation", "uid", "queue_pair")
    return tuple(record.get(key) for key in keys)


def _transfer_name(record: Record) -> str:
    return f"{record['operation']} {record['uid']}"
