"""An exchange of messages that a simulator, threads and coroutines can all run.

Producers wait and send, consumers take and work. Who waits how long and sends to whom is decided
here, so that what runs it (`faults.bench.backends`) has nothing to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

WORK_US = 200
"""What a consumer spends on a message."""
_LEAST_WAIT_US, _RANGE_US = 5_000, 10_000


class Message(NamedTuple):
    """The ``number``-th message of a producer."""

    producer: int
    number: int


Deliveries = list[list[Message]]
"""For each consumer what it took, in order."""


@dataclass(frozen=True)
class Exchange:
    """``pairs`` producers send ``messages`` each, in turn to ``pairs`` consumers."""

    pairs: int
    messages: int

    @property
    def events(self) -> int:
        """A wait that ends, a message that is taken and work that ends, for every message."""
        return 3 * self.pairs * self.messages

    def consumer_of(self, message: Message) -> int:
        """Whose message it is; every consumer gets one of each number."""
        return (message.producer + message.number) % self.pairs

    def waits_us(self, producer: int) -> list[int]:
        """How long a producer waits before each message; no two ever send at one moment."""
        waits = []
        for number in range(self.messages):
            drawn = _LEAST_WAIT_US + (7_919 * number + 104_729 * producer) % _RANGE_US
            waits.append(self.pairs * max(1, drawn // self.pairs))
        waits[0] += producer
        return waits

    def sent_us(self) -> list[tuple[int, Message]]:
        """When each message is sent, in this order."""
        return sorted(
            (at, Message(producer, number))
            for producer in range(self.pairs)
            for number, at in enumerate(accumulate(self.waits_us(producer)))
        )

    def deliveries(self) -> Deliveries:
        """What every consumer takes if time passes only where it is said to pass."""
        taken: Deliveries = [[] for _ in range(self.pairs)]
        for _, message in self.sent_us():
            taken[self.consumer_of(message)].append(message)
        return taken

    def duration_s(self) -> float:
        """Until the last consumer has worked on its last message."""
        free = [0] * self.pairs
        for at, message in self.sent_us():
            consumer = self.consumer_of(message)
            free[consumer] = max(free[consumer], at) + WORK_US
        return max(free) / 1e6
