"""Tells the story: every chapter goes through the records once, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from faults.story.answers import Answers
from faults.story.blocks import Blocks
from faults.story.chapter import Chapter
from faults.story.moment import Moment, explained, shortened
from faults.story.requests import Requests
from faults.story.strikes import Strikes
from faults.story.subject import subject_of
from faults.story.transfers import Transfers
from faults.story.voices import Voices
from sim.kernel.log import Record
from sim.oracles import Violation

_CHAPTERS: tuple[type[Chapter], ...] = (Requests, Blocks, Transfers, Strikes, Voices, Answers)


def tell(
    records: Sequence[Record], violations: Sequence[Violation], also: Iterable[str] = ()
) -> list[Moment]:
    """The story of the violation that says most, at most MAX_MOMENTS lines in order of time.

    ``also`` names more requests that it is about.
    """
    if not violations:
        return []
    subject = subject_of(violations, records)
    subject.requests.update(dict.fromkeys(also))
    chapters = [chapter(subject) for chapter in _CHAPTERS]
    listeners: dict[str, list[Callable[[Record], None]]] = {}
    for chapter in chapters:
        for kind, listen in chapter.kinds.items():
            listeners.setdefault(kind, []).append(listen)
    for subject.place, record in enumerate(records):
        for listen in listeners.get(record.kind, ()):
            listen(record)
    told = shortened([moment for chapter in chapters for moment in chapter.moments()])
    return explained(told)
