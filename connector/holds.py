"""What one producer rank knows of its holds: answers readers, and reports each hold's end once.

Used by two threads: the scheduler's orders arrive in the worker's, readers' messages in the
listener's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from connector.core.hold import RANK_HOLD, HoldAction, HoldEvent, HoldState
from connector.core.offer import HoldId
from connector.core.ranks import readers_of
from connector.core.releases import ReleaseCount
from connector.metadata import ExpectedHold, StepOrders


@dataclass
class _Hold:
    expected: ExpectedHold
    state: HoldState = HoldState.EXPECTED
    releases: ReleaseCount = field(default_factory=ReleaseCount)


class HoldBook:
    """All holds of one rank.

    Args:
        tp_size: of this engine.
    """

    def __init__(self, tp_size: int) -> None:
        self._tp_size = tp_size
        self._lock = threading.Lock()
        self._incarnation = ""
        self._by_number: dict[int, _Hold] = {}
        self._by_transfer: dict[str, dict[int, _Hold]] = {}
        self._sent: list[str] = []
        self._renewed: set[int] = set()

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def incarnation(self) -> str:
        """Of the scheduler; empty until its first orders."""
        return self._incarnation

    def take_orders(self, orders: StepOrders) -> None:
        with self._lock:
            self._incarnation = orders.incarnation
            for expected in orders.expected:
                hold = _Hold(expected)
                self._by_number[expected.number] = hold
                same = self._by_transfer.setdefault(expected.transfer_id, {})
                same[expected.number] = hold
            self._tell(orders.offered, HoldEvent.OFFERED)
            self._tell(orders.revoked, HoldEvent.REVOKED)
            self._tell(orders.dropped, HoldEvent.DROPPED)

    def is_held(self, hold_id: HoldId) -> bool:
        """Whether the blocks of a hold are held now."""
        with self._lock:
            hold = self._by_number.get(hold_id.number)
            if hold is None or hold_id.incarnation != self._incarnation:
                return False
            return HoldAction.SAY_HELD in self._advance(hold, HoldEvent.ASKED)

    def renew(self, hold_ids: Iterable[HoldId]) -> tuple[int, int]:
        """Readers ask for more time: (holds that the scheduler will be told of, the others)."""
        passed_on = refused = 0
        with self._lock:
            for hold_id in hold_ids:
                hold = self._find("", hold_id)
                if hold and HoldAction.PASS_ON in self._advance(hold, HoldEvent.RENEWED):
                    self._renewed.add(hold.expected.number)
                    passed_on += 1
                else:
                    refused += 1
        return passed_on, refused

    def release(
        self, transfer_id: str, hold_id: HoldId | None, reader: int | None, consumer_size: int
    ) -> bool:
        """A reader is done; False if that concerns no hold of this rank.

        Args:
            transfer_id: names the hold if nothing better does.
            hold_id: from a reader that knows it; one of another transfer is not released, since a
                router has mixed up two offers.
            reader: the consumer's rank, from such a reader.
            consumer_size: ranks of the consumer.
        """
        with self._lock:
            hold = self._find(transfer_id, hold_id)
            if hold is None or hold.expected.transfer_id != transfer_id:
                return False
            num_readers = readers_of(self._tp_size, consumer_size)
            if hold.releases.add(reader, num_readers=num_readers):
                self._advance(hold, HoldEvent.RELEASED)
            return True

    def take_sent(self) -> set[str]:
        """Requests whose holds have ended since the last call."""
        with self._lock:
            sent, self._sent = self._sent, []
            return set(sent)

    def take_renewed(self) -> set[int]:
        """Numbers of holds that were renewed since the last call and are held."""
        with self._lock:
            renewed, self._renewed = self._renewed, set()
            return renewed

    # ---------------------------------------------------------------- internal

    def _find(self, transfer_id: str, hold_id: HoldId | None) -> _Hold | None:
        if hold_id is not None:
            known = hold_id.incarnation == self._incarnation
            return self._by_number.get(hold_id.number) if known else None
        same = self._by_transfer.get(transfer_id, {})  # a retried prefill has its predecessor's id
        return next(iter(same.values()), None)

    def _tell(self, numbers: Iterable[int], event: HoldEvent) -> None:
        for number in numbers:
            hold = self._by_number.get(number)
            if hold is not None:  # a revocation may cross the release that ended the hold
                self._advance(hold, event)

    def _advance(self, hold: _Hold, event: HoldEvent) -> tuple[HoldAction, ...]:
        move = RANK_HOLD(hold.state, event)
        hold.state = move.state
        if HoldAction.REPORT_SENT in move.actions:
            self._sent.append(hold.expected.request_id)
        if move.state in RANK_HOLD.final:
            self._forget(hold.expected)
        return move.actions

    def _forget(self, expected: ExpectedHold) -> None:
        del self._by_number[expected.number]
        self._renewed.discard(expected.number)
        same = self._by_transfer[expected.transfer_id]
        del same[expected.number]
        if not same:
            del self._by_transfer[expected.transfer_id]
