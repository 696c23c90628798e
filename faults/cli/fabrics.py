"""``faultlab fabrics``: the RDMA networks one can name, and how near they are to measurements."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from faults.bench.published import Measurement, published
from faults.cli.loading import loading
from faults.cli.outcome import JsonFlag, Outcome
from faults.cli.tables import print_table
from sim.errors import UsageError
from sim.fabric import FabricProfile, fabric_names, named_fabric
from sim.hints import nearest
from sim.scenario import find_fabric

if TYPE_CHECKING:
    from faults.bench.mori_io import Prediction

_AIM = 0.10

Fabric = Annotated[
    str | None,
    typer.Argument(metavar="[NAME|FILE.toml]", help="The one to compare with measurements."),
]
Against = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Whose measurements; default: those of its own name."),
]


def command(fabric: Fabric = None, against: Against = None, json: JsonFlag = False) -> Outcome:
    """List the fabrics, or compare one with published measurements of the library mori.io.

    The comparison runs the library's benchmark on the simulated fabric, once for each published
    row. There are no published tables for Pollara NICs and none for XGMI.

    \b
    Examples:
      faultlab fabrics
      faultlab fabrics mi300x-thor2
      faultlab fabrics my.toml --against mi300x-cx7
    """
    rows = list(published())
    if fabric is None:
        if against is not None:
            raise UsageError(f"--against {against}: say which fabric to compare with it")
        return _listed(Counter(row.fabric for row in rows))
    profile = find_fabric(fabric)
    return _compared(profile, _chosen(rows, against or profile.name))


def _listed(measured: Counter[str]) -> Outcome:
    fabrics = [
        {**msgspec.to_builtins(named_fabric(name)), "published_rows": measured[name]}
        for name in fabric_names()
    ]
    return Outcome({"fabrics": fabrics}, partial(_render_list, fabrics))


def _render_list(fabrics: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="fabrics")
    for heading in ("fabric", "GB/s of a NIC", "NICs of a machine", "published rows"):
        table.add_column(heading)
    for fabric in fabrics:
        keys = ("name", "nic_bytes_per_ns", "nics_per_node", "published_rows")
        table.add_row(*(str(fabric[key]) for key in keys))
    print_table(console, table)
    console.print("faultlab fabrics NAME compares one with what was published", style="dim")


def _chosen(rows: list[Measurement], name: str) -> list[Measurement]:
    chosen = [row for row in rows if row.fabric == name]
    if not chosen:
        names = sorted({row.fabric for row in rows})
        raise UsageError(
            f"{name}: nothing was published about it{nearest(name, names)}; compare --against one "
            f"of: {', '.join(names)}"
        )
    return chosen


def _compared(profile: FabricProfile, rows: list[Measurement]) -> Outcome:
    with loading():
        from faults.bench.mori_io import predict  # noqa: PLC0415

    predictions = [predict(profile, row) for row in rows]
    document = {
        "fabric": msgspec.to_builtins(profile),
        "rows": [_row(prediction) for prediction in predictions],
        "largest_error": max(abs(prediction.error) for prediction in predictions),
        "rows_beyond_aim": sum(abs(prediction.error) > _AIM for prediction in predictions),
    }
    return Outcome(document, partial(_render_rows, profile.name, predictions))


def _row(prediction: Prediction) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(prediction.measured),
        "predicted_latency_us": round(prediction.latency_us, 3),
        "predicted_gb_per_s": round(prediction.gb_per_s, 3),
        "error": round(prediction.error, 4),
    }


def _render_rows(name: str, predictions: list[Prediction], console: Console) -> None:
    table = Table(title=f"{name}: mori.io's benchmark, published and predicted")
    headings = ("", "bytes", "batch", "QPs", "us", "predicted", "GB/s", "predicted", "error")
    for heading in headings:
        table.add_column(heading, justify="right")
    for prediction in predictions:
        row = prediction.measured
        table.add_row(
            row.operation,
            f"{row.message_bytes:,}",
            str(row.batch),
            str(row.queue_pairs),
            f"{row.latency_us:.2f}",
            f"{prediction.latency_us:.2f}",
            f"{row.gb_per_s:.2f}",
            f"{prediction.gb_per_s:.2f}",
            f"{prediction.error:+.1%}",
        )
    print_table(console, table)
    largest = max(abs(prediction.error) for prediction in predictions)
    beyond = sum(abs(prediction.error) > _AIM for prediction in predictions)
    console.print(
        f"{len(predictions)} rows; largest error {largest:.1%}; {beyond} beyond {_AIM:.0%}. "
        "The tables are older than the library's merging of neighbouring items, and there are none "
        "for Pollara NICs or XGMI (docs/fabrics.md)."
    )
