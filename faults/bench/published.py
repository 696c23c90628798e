"""What was published about how fast the library mori.io is: numbers, in a file beside this one.

They are the averages of its document MORI-IO-BENCHMARK, measured in August to October 2025.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

_FILE = Path(__file__).with_name("mori_io_published.csv")


class Measurement(msgspec.Struct, frozen=True):
    """A row of a published table: what was measured, and the average latency of a batch.

    ``device_pairs`` is how many initiators measured at the same time; the row is of one.
    """

    fabric: str
    operation: Literal["read", "write"]
    message_bytes: int
    batch: int
    queue_pairs: int
    device_pairs: int
    latency_us: float
    gb_per_s: float


def published() -> Iterator[Measurement]:
    """All rows there are, in the order of the tables."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield msgspec.convert(row, Measurement, strict=False)
