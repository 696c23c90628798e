"""Rows of a benchmark table, in the columns of the library's published one."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = (
    *("hardware", "backend", "op", "message_bytes", "batch", "qps"),
    *("bandwidth_gbytes_per_s", "latency_us_avg", "source"),
)
_CALLS = re.compile(r"\b(\d+) calls? in a request\b")
_DEVICES = re.compile(r"\b(\d+)\+\d+ devices\b")
_MOST = {"message_bytes": 1 << 30, "batch": 1 << 16, "qps": 1 << 10, "calls": 1 << 10}
_MOST_MESSAGES = 1 << 20
_LATENCIES_US = (1e-3, 1e9)
"""Bounds that no table comes near, and beyond which a fit or a simulation would not end."""


@dataclass(frozen=True)
class Shape:
    """What is timed: a request of ``calls`` calls of ``batch`` messages each, and the wait for all.

    Args:
        backend: "rdma" or "xgmi".
        op: "read" or "write".
        message_bytes: of each message; none is next to another, so that none are merged.
        batch: messages of a call.
        qps: queue pairs of the session.
        calls: posted one behind the other before the first is waited for.
    """

    backend: str
    op: str
    message_bytes: int
    batch: int
    qps: int
    calls: int = 1

    @property
    def payload(self) -> int:
        """Bytes of a request."""
        return self.message_bytes * self.batch * self.calls

    def __str__(self) -> str:
        return (
            f"{self.backend} {self.op} {self.message_bytes} B x {self.batch}, {self.qps} queue "
            f"pairs, {self.calls} calls"
        )


@dataclass(frozen=True)
class Row:
    """A shape and the average latency of its requests.

    Args:
        hardware: a name for what was measured.
        shape: of the requests.
        latency_us: from the first call to the end of the wait.
        source: under which conditions, in words; the table has no other column for them.
        devices: initiators that measured at the same time.
    """

    hardware: str
    shape: Shape
    latency_us: float
    source: str
    devices: int = 1

    @property
    def gb_per_s(self) -> float:
        """Payload over latency, as the library counts."""
        return self.shape.payload / self.latency_us / 1000


def conditions(arm: str, shape: Shape, memory: str, iterations: int) -> str:
    """The ``source`` of a row of this project."""
    return (
        f"hw_tests.calibration, arm {arm}; 1+1 devices; {shape.calls} calls in a request; "
        f"{memory} memory; average of {iterations}"
    )


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """As CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            shape = row.shape
            numbers = (shape.message_bytes, shape.batch, shape.qps)
            figures = (f"{row.gb_per_s:.4g}", f"{row.latency_us:.6g}")
            writer.writerow([row.hardware, shape.backend, shape.op, *numbers, *figures, row.source])


def read_rows(path: Path) -> list[Row]:
    """The rows of a table with these columns, the published one included.

    Raises:
        ValueError: a column is missing, or a row has something else than numbers in it.
    """
    with path.open(encoding="utf-8", newline="") as file:
        try:
            return _rows(path, csv.DictReader(file))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}; expected CSV in UTF-8 with the columns "
                             f"{','.join(COLUMNS)}") from None  # fmt: skip


def _rows(path: Path, reader: csv.DictReader[str]) -> list[Row]:
    if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
        raise ValueError(
            f"{path}: has no column {', '.join(missing)}; expected {','.join(COLUMNS)}"
        )
    return [_row(f"{path}, line {number}", fields) for number, fields in enumerate(reader, 2)]


def _row(place: str, fields: dict[str, Any]) -> Row:
    try:
        calls, devices = (pattern.search(fields["source"]) for pattern in (_CALLS, _DEVICES))
        shape = Shape(
            backend=fields["backend"],
            op=fields["op"],
            message_bytes=int(fields["message_bytes"]),
            batch=int(fields["batch"]),
            qps=int(fields["qps"]),
            calls=int(calls[1]) if calls else 1,
        )
        row = Row(
            fields["hardware"],
            shape,
            float(fields["latency_us_avg"]),
            fields["source"],
            int(devices[1]) if devices else 1,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}; expected a row of {','.join(COLUMNS)}") from None
    is_known = shape.backend in ("rdma", "xgmi") and shape.op in ("read", "write")
    if not is_known or not _is_within_bounds(row):
        raise ValueError(f"{place}: {shape} took {row.latency_us} us; expected rdma or xgmi, read "
                         f"or write, numbers of 1 or more and at most {_MOST}, {_MOST_MESSAGES} "
                         f"messages in all, and a latency in us of {_LATENCIES_US}")  # fmt: skip
    return row


def _is_within_bounds(row: Row) -> bool:
    shape, (shortest, longest) = row.shape, _LATENCIES_US
    counts = [1 <= getattr(shape, name) <= most for name, most in _MOST.items()]
    is_possible = all(counts) and shape.batch * shape.calls <= _MOST_MESSAGES
    return is_possible and shortest <= row.latency_us <= longest
