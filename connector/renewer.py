"""Keeps producers' leases alive for requests that wait on this consumer rank or are being read.

Used by the loader's thread alone. Nobody answers a renewal: whether it helped is known when the
read is confirmed. All holds of one producer rank are renewed together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zmq

from connector.core.errors import PeerMismatch
from connector.core.offer import Address, HoldId
from connector.counters import Counters
from connector.logs import log
from connector.metadata import KeepOrder

if TYPE_CHECKING:
    from connector.peer import Peer  # needs mori, this does not

_RENEWALS_A_LEASE = 3  # so that one may be lost; a third after two that are comes as the lease ends
_SHORTEST_INTERVAL_S = 0.01  # whatever lease a producer states


@dataclass
class _Kept:
    """The holds of one start of a producer, each with the order that it was kept by and its end."""

    address: Address
    interval_s: float
    due_at: float
    orders: dict[int, tuple[KeepOrder, float]] = field(default_factory=dict)


class Renewer:
    """Renews until a hold is forgotten, or for so long that nobody can be waiting any more.

    Args:
        peer_of: the producer rank that this rank reads from.
        control_timeout_s: after which a request that is not loaded yet is taken to be waiting.
        renewal_timeout_s: for which a hold is renewed at most.
        counters: of this rank.
    """

    def __init__(
        self,
        peer_of: Callable[[Address], Peer],
        control_timeout_s: float,
        renewal_timeout_s: float,
        counters: Counters,
    ) -> None:
        self._peer_of = peer_of
        self._control_timeout_s = control_timeout_s
        self._renewal_timeout_s = renewal_timeout_s
        self._counters = counters
        self._kept: dict[tuple[Address, str], _Kept] = {}
        self.connecting: list[Peer] = []
        """Peers that a renewal waits to reach."""
        self._log = log.bind(role="consumer", half="worker")

    def __len__(self) -> int:
        return sum(len(kept.orders) for kept in self._kept.values())

    def keep(self, order: KeepOrder, now: float) -> None:
        """Renew the hold from now on; soon for the first time, since its lease has begun before.

        The latest leg that shares it counts.
        """
        _, address, hold = order.share
        if hold is None or not order.lease_s:
            return
        interval = max(order.lease_s / _RENEWALS_A_LEASE, _SHORTEST_INTERVAL_S)
        key = (address, hold.incarnation)
        first = now + min(interval, self._control_timeout_s)
        kept = self._kept.setdefault(key, _Kept(address, interval, first))
        kept.due_at = min(kept.due_at, first)
        kept.orders[hold.number] = (order, now + self._renewal_timeout_s)

    def forget(self, address: Address, hold: HoldId | None) -> None:
        """Nobody waits for the hold or reads from it any more."""
        key = (address, "" if hold is None else hold.incarnation)
        if hold is not None and key in self._kept:
            self._kept[key].orders.pop(hold.number, None)
            if not self._kept[key].orders:
                del self._kept[key]

    def go_on(self, now: float) -> None:
        """Send what is due."""
        self.connecting = []
        for (_, incarnation), kept in list(self._kept.items()):
            if now >= kept.due_at:
                self._drop_overdue(kept, now)
                self._renew(kept, incarnation, now)

    def seconds_to_next(self, now: float) -> float | None:
        """Until something is due; None if nothing ever will be."""
        if not self._kept:
            return None
        return max(min(kept.due_at for kept in self._kept.values()) - now, 0.0)

    @property
    def sockets(self) -> list[zmq.Socket[Any]]:
        """What the answer to a handshake that a renewal waits for may arrive on."""
        return [socket for peer in self.connecting for socket in peer.talk.sockets]

    # ---------------------------------------------------------------- internal

    def _renew(self, kept: _Kept, incarnation: str, now: float) -> None:
        if kept.orders:
            try:
                self._send(kept, incarnation, now)
            except PeerMismatch as error:  # its loads will fail for that
                self._log.warning("not-renewed", peer=kept.address.host, reason=str(error))
                kept.orders.clear()
            except Exception as error:
                self._log.warning("not-renewed", peer=kept.address.host, reason=repr(error))
                kept.due_at = now + kept.interval_s
        if not kept.orders:
            del self._kept[kept.address, incarnation]

    def _send(self, kept: _Kept, incarnation: str, now: float) -> None:
        peer = self._peer_of(kept.address)
        is_reached = peer.talk.reach(now, incarnation, since=kept.due_at)
        if not (is_reached and peer.talk.extend_leases(incarnation, list(kept.orders))):
            self.connecting.append(peer)
            return
        self._counters.add("sent_renewals", len(kept.orders))
        kept.due_at = now + kept.interval_s

    def _drop_overdue(self, kept: _Kept, now: float) -> None:
        overdue = [number for number, (_, until) in kept.orders.items() if now >= until]
        for number in overdue:
            order, _ = kept.orders.pop(number)
            self._log.warning(
                "no-longer-renewed",
                request=order.request_id,
                waited_s=self._renewal_timeout_s,
                remedy="if requests may wait as long as that, raise renewal_timeout",
            )
