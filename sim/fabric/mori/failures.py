"""Failures of peers and of the local NIC, as ``pop_peer_failure`` hands them out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sim.fabric.mori.enums import PeerFailureReason

_MOST_EVENTS = 1024

EVENT_REASONS = {
    "QP_FATAL": PeerFailureReason.LOCAL_QP_ERROR,
    "QP_REQ_ERR": PeerFailureReason.LOCAL_QP_ERROR,
    "QP_ACCESS_ERR": PeerFailureReason.LOCAL_QP_ERROR,
    "CQ_ERR": PeerFailureReason.LOCAL_CQ_ERROR,
    "DEVICE_FATAL": PeerFailureReason.LOCAL_DEVICE_FATAL,
    "PORT_ERR": PeerFailureReason.LOCAL_PORT_DOWN,
}


@dataclass(frozen=True, eq=False)
class PeerFailureEvent:
    """One failure; fields that do not apply are empty or 0."""

    remote_engine_key: str
    reason: PeerFailureReason
    qp_num: int
    port_num: int
    device_name: str
    detail: str


class PeerFailures:
    """First in, first out; the newest are lost when nobody pops; repeats are folded."""

    def __init__(self) -> None:
        self._events: deque[PeerFailureEvent] = deque()
        self._seen: dict[tuple[int, int], None] = {}

    def add(self, event: PeerFailureEvent) -> None:
        """Remember ``event``, unless the same resource has failed in this way before."""
        resource = (int(event.reason), event.qp_num)
        if resource in self._seen or len(self._events) >= _MOST_EVENTS:
            return
        self._seen[resource] = None
        self._events.append(event)

    def forget(self, reason: PeerFailureReason) -> None:
        """The resource works again; its next failure is news."""
        self._seen.pop((int(reason), 0), None)

    def pop(self) -> PeerFailureEvent | None:
        """The oldest failure nobody has seen yet."""
        return self._events.popleft() if self._events else None
