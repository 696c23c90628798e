"""Reader of the Azure LLM inference traces: CSV without prompt content.

Columns ``TIMESTAMP`` (UTC, up to nanoseconds), ``ContextTokens`` and ``GeneratedTokens``; prompts
share nothing, because the traces say nothing about content. The traces are CC-BY-4.0 and were
published with, and are to be cited as: Patel et al., "Splitwise: Efficient Generative LLM
Inference Using Phase Splitting", ISCA 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from sim.units import SECOND
from sim.workload.records import TraceError, TraceRecord, shown, unique_content
from sim.workload.request import Segment

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(?:\+00:00)?", re.ASCII
)


def read_azure(path: str, lines: Iterable[tuple[int, str]]) -> Iterator[TraceRecord]:
    """Records of the numbered ``lines``, the header first. Raises TraceError."""
    header: list[str] | None = None
    for number, line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if header is None:
            header = _checked_header(path, number, cells)
            continue
        if len(cells) != len(header):
            raise TraceError(
                path, number, f"{shown(line)} has {len(cells)} columns, expected {len(header)}"
            )
        row = dict(zip(header, cells, strict=True))
        yield TraceRecord(
            timestamp_ns=_timestamp_ns(path, number, row["TIMESTAMP"]),
            prompt=(Segment(unique_content(number), _count(path, number, row, "ContextTokens")),),
            output_tokens=_count(path, number, row, "GeneratedTokens"),
        )


def _checked_header(path: str, number: int, cells: list[str]) -> list[str]:
    missing = [name for name in COLUMNS if name not in cells]
    if missing:
        raise TraceError(
            path,
            number,
            f"column {missing[0]!r} is missing from the header {shown(','.join(cells))}; "
            f"expected {','.join(COLUMNS)}",
        )
    return cells


def _timestamp_ns(path: str, number: int, text: str) -> int:
    problem = f"TIMESTAMP is {shown(text)}, must be UTC like 2023-11-16 18:17:03.9799600"
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise TraceError(path, number, problem)
    date, clock, fraction = match.groups(default="")
    try:
        second = datetime.fromisoformat(f"{date} {clock}").replace(tzinfo=UTC)
    except ValueError as error:
        raise TraceError(path, number, f"{problem} ({error})") from error
    # Not timestamp(): a float holds no nanoseconds of this century.
    since_epoch = second - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since_epoch.days * 86_400 + since_epoch.seconds
    return seconds * SECOND + int(fraction.ljust(9, "0"))


def _count(path: str, number: int, row: dict[str, str], column: str) -> int:
    text = row[column]
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise TraceError(path, number, f"{column} is {shown(text)}, must be an integer, 1 or more")
    return int(text)
