"""Telling the target that a transfer is over: one small SEND per queue pair behind the data.

Queue pairs keep the order, so when all SENDs of a transfer have arrived its bytes are there.
What arrived is counted by engine key and transfer number and never forgotten.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from sim.fabric.mori import messages
from sim.fabric.mori.endpoint import Endpoint
from sim.fabric.verdicts import PostItem, PostPart, refuse
from sim.fabric.work import Send
from sim.verdict import Delay, Deliver, Fail, Verdict

if TYPE_CHECKING:
    from sim.fabric.mori.backend import RdmaBackend

_LAYOUT = struct.Struct("<Qii")  # transfer number, queue pair's index, how many there are


class Inbound:
    """What peers have told."""

    def __init__(self) -> None:
        self._missing: dict[tuple[str, int], int] = {}

    def arrived(self, remote_key: str, message: bytes) -> None:
        """One SEND of engine ``remote_key``; a reused number counts on where the old one was."""
        uid, _index, total = _LAYOUT.unpack(message)
        known = (remote_key, uid)
        self._missing[known] = self._missing.get(known, total) - 1

    def is_complete(self, remote_key: str, uid: int) -> bool:
        """Whether a transfer's SENDs have arrived, each once."""
        return self._missing.get((remote_key, uid)) == 0


class Notifier:
    """Sends the notifications of one session."""

    def __init__(self, backend: RdmaBackend, endpoints: list[Endpoint]) -> None:
        self._backend = backend
        self._endpoints = endpoints

    def notify(self, uid: int) -> str | None:
        """Post on every queue pair, or on none if one has no room; returns what went wrong."""
        total = len(self._endpoints)
        sends = [Send.of(_LAYOUT.pack(uid, index, total), uid) for index in range(total)]
        verdicts: list[Verdict] = []
        for number, send in enumerate(sends):
            verdicts.append(self._ask(number, send))
            error = self._reserve(number, verdicts[-1])
            if error is not None:
                self._give_back(self._endpoints[:number])
                return error
        for number, (send, verdict) in enumerate(zip(sends, verdicts, strict=True)):
            if isinstance(verdict, (PostPart, Fail)):
                self._give_back(self._endpoints[number:])
                return messages.NOTIFY_REFUSED
            self._post(self._endpoints[number], send)
        return None

    def _ask(self, number: int, send: Send) -> Verdict:
        queue_pair = self._endpoints[number].queue_pair
        item = PostItem(send, queue_pair.pair, queue_pair.number)
        verdict = self._backend.fabric.verdicts.ask(item)
        match verdict:
            case Deliver() | Fail(code="SQ_FULL") | Fail(code="ENOMEM") | PostPart():
                pass
            case Delay(by_ns=by_ns):
                self._backend.kernel.sleep(by_ns)
            case _:
                refuse(item, verdict)
        return verdict

    def _reserve(self, number: int, verdict: Verdict) -> str | None:
        endpoint, settings = self._endpoints[number], self._backend.settings
        if endpoint.degraded:
            return messages.DEGRADED
        queue, backoff_ns = endpoint.queue_pair.send_queue, settings.send_queue_backoff_ns
        if isinstance(verdict, Fail) and verdict.code == "SQ_FULL":
            self._backend.kernel.sleep(backoff_ns)
            return verdict.message or self._full(number, queue.limit)
        if not queue.wait_for(1, backoff_ns, what="room in a send queue"):
            return self._full(number, queue.depth)
        if endpoint.by_event:  # it happened while this call waited
            queue.give_back(1)
            return messages.FAILED_BY_EVENT
        return None

    def _full(self, number: int, depth: int) -> str:
        return messages.send_queue_full(
            number,
            self._endpoints[number].queue_pair.send_queue,
            1,
            self._backend.settings,
            self._backend.config,
            kind="notify",
            depth=depth,
        )

    def _give_back(self, endpoints: list[Endpoint]) -> None:
        for endpoint in endpoints:
            endpoint.queue_pair.send_queue.give_back(1)

    def _post(self, endpoint: Endpoint, send: Send) -> None:
        if notify_ns := self._backend.fabric.profile.notify_ns:
            self._backend.kernel.sleep(notify_ns)
        self._backend.fabric.record("posted", send, endpoint.queue_pair)
        endpoint.queue_pair.post(send)
