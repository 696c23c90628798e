"""A chapter of a story: it looks at records of some kinds and tells what they mean."""

from __future__ import annotations

from collections.abc import Callable

from faults.story.moment import Moment
from faults.story.subject import Subject
from sim.kernel.log import Record


class Chapter:
    """``kinds`` maps kinds of records to whoever looks at them, in order of time."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.kinds: dict[str, Callable[[Record], None]] = {}
        self._moments: list[Moment] = []

    def moments(self) -> list[Moment]:
        """What there is to tell, once all records have been seen."""
        return self._moments

    def add(self, record: Record, text: str, weight: int) -> None:
        """Tell ``text`` of the time of ``record``, which is the one at hand."""
        self._moments.append(self.moment(record, text, weight))

    def moment(self, record: Record, text: str, weight: int) -> Moment:
        """What may be told, or not, once all records have been seen."""
        return Moment(record.time_ns, text, weight, self.subject.place)
