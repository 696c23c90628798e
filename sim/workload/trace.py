"""Loading a trace file: which format it is, in what order its requests arrive.

The format is told from the first line, not from the file's name. Requests are ordered by
timestamp (file order among equals), the first arrives at 0, and they are named ``req-0``,
``req-1`` and so on in that order. Scaling is ``sim.workload.scaling``'s business.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sim.workload.azure import COLUMNS, read_azure
from sim.workload.checks import check_count
from sim.workload.mooncake import read_mooncake
from sim.workload.records import TraceError, TraceRecord, shown
from sim.workload.request import RequestSpec

_ACCEPTED: Final = (
    'Mooncake JSON lines ({"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": '
    f"[...]}}) or Azure CSV (header {','.join(COLUMNS)})"
)


def load_trace(path: Path | str, *, requests: int | None = None) -> list[RequestSpec]:
    """The first ``requests`` requests of a trace by arrival, or all of them.

    The whole file is checked either way. A file with fewer requests gives what it has, so look
    at the length of the result. Raises TraceError, or WorkloadError for a bad ``requests``.
    """
    if requests is not None:
        check_count("requests", requests)
    records = _read_records(str(path), _numbered_lines(Path(path)))
    records.sort(key=lambda record: record.timestamp_ns)
    start_ns = records[0].timestamp_ns
    return [
        RequestSpec(
            request_id=f"req-{index}",
            arrival_ns=record.timestamp_ns - start_ns,
            prompt=record.prompt,
            max_tokens=record.output_tokens,
        )
        for index, record in enumerate(records[:requests])
    ]


def _numbered_lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TraceError(str(path), None, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceError(
            str(path), None, f"is not UTF-8 text ({error.reason}); accepted: {_ACCEPTED}"
        ) from error
    numbered = enumerate(text.split("\n"), start=1)
    return [(number, line.strip()) for number, line in numbered if line.strip()]


def _read_records(path: str, lines: list[tuple[int, str]]) -> list[TraceRecord]:
    if not lines:
        raise TraceError(path, None, f"is empty; accepted: {_ACCEPTED}")
    number, first = lines[0]
    if first.startswith("{"):
        return list(read_mooncake(path, lines))
    if any(column in first for column in COLUMNS):
        records = list(read_azure(path, lines))
        if not records:
            raise TraceError(path, number, "a header and no requests; expected at least one row")
        return records
    raise TraceError(path, number, f"starts with {shown(first)}; accepted: {_ACCEPTED}")
