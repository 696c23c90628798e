"""What every trace reader shares: the record it yields and the error it raises.

Readers turn lines into records and know nothing of ordering, limits or request ids;
``sim.workload.trace`` does those once for all formats.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.errors import UsageError
from sim.workload.request import Segment


class TraceError(UsageError):
    """A trace cannot be read. Names the file, the line, the bad value and what is accepted."""

    def __init__(self, path: str, line: int | None, problem: str) -> None:
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}")
        self.path = path
        self.line = line


class TraceRecord(NamedTuple):
    """One line of a trace, in nanoseconds on whatever time base the file uses."""

    timestamp_ns: int
    prompt: tuple[Segment, ...]
    output_tokens: int


def shown(value: object) -> str:
    """A value as an error message quotes it: short, whatever the file holds."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unique_content(line: int) -> int:
    """Content id of a prompt that shares nothing; negative, because hash ids never are."""
    return -line
