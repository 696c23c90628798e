"""``python -m hw_tests.calibration``: measure, fit a fabric, compare."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hw_tests.arms import ARMS
from hw_tests.calibration.fit import Fit, fit
from hw_tests.calibration.measure import Loop, Runner, in_groups, run_on_real
from hw_tests.calibration.on_sim import predict, run_on
from hw_tests.calibration.plan import shapes
from hw_tests.calibration.report import Compared, document, fabric_toml, table
from hw_tests.calibration.rows import Row, conditions, read_rows, write_rows
from hw_tests.child import ChildFailed
from hw_tests.option_types import file, folder, name, parsed
from hw_tests.unverified import NOTE
from sim.errors import UsageError
from sim.scenario import find_fabric

_LOOPS = {
    "sim": Loop(),
    "mori-cpu": Loop(ring_bytes=1 << 26, warm_up=2, iterations=10),
    "rocm": Loop(ring_bytes=1 << 29, warm_up=10, iterations=100),
}


_MEASURED = {"arm": "sim", "backend": "rdma", "memory": "cpu", "first": False}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if all was written, 2 if something cannot be done here."""
    parser = _parser()
    options = parsed(parser, arguments)
    for key, value in _MEASURED.items():
        if getattr(options, key) is None:
            setattr(options, key, value)
        elif options.rows:
            parser.error(f"--{key} says what to measure, and --rows measures nothing; drop one")
    try:
        base = find_fabric(options.base)
        given = read_rows(options.rows) if options.rows else None
        _discard(options)
        rows = _measured(options) if given is None else given
        write_rows(options.out / "benchmark.csv", rows)
        fitted = None if options.compare_only else fit(rows, base, options.hardware)
        found = _compared(rows, fitted, options)
    except (UsageError, ValueError, OSError, ChildFailed) as error:
        parser.error(str(error))
    (options.out / "parity.json").write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "parity.txt").write_text(table(found))
    print(table(found))
    return 0


def _discard(options: argparse.Namespace) -> None:
    """Remove what an earlier run has left in the folder: if this one fails, nothing of it may look
    as if it were of this one. What this one reads or does not write stays."""
    stale = {"parity.json", "parity.txt"}
    stale |= set() if options.rows else {"benchmark.csv"}
    stale |= set() if options.compare_only else {"fabric.toml"}
    for path in (options.out / each for each in sorted(stale)):
        if path.resolve() != Path(options.base).resolve():
            path.unlink(missing_ok=True)


def _measured(options: argparse.Namespace) -> list[Row]:
    reason = ARMS[options.arm]().unavailable()
    if reason is not None:
        raise ValueError(f"--arm {options.arm}: {reason}")
    runner: Runner = (
        run_on(find_fabric(options.fabric)) if options.arm == "sim" else run_on_real(options.arm)
    )
    rows = []
    for backend in options.backend.split(","):
        memory = "gpu" if backend == "xgmi" else options.memory
        loop = _LOOPS[options.arm]._replace(memory=memory)
        asked = shapes(backend, first=options.first)
        latencies = in_groups(asked, loop, runner)
        rows += [
            Row(
                options.hardware,
                shape,
                latency,
                conditions(options.arm, shape, memory, loop.iterations),
            )
            for shape, latency in zip(asked, latencies, strict=True)
        ]
    return rows


def _compared(
    rows: Sequence[Row], fitted: Fit | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Writes the fabric and simulates every row of one initiator with what was written."""
    if fitted is None:
        profile = find_fabric(options.base)
    else:
        path = options.out / "fabric.toml"
        source = options.rows or f"{options.hardware}, arm {options.arm}"
        path.write_text(fabric_toml(fitted, f"{fitted.num_rows} rows of {source}"))
        profile = find_fabric(str(path))
    alone = [row for row in rows if row.devices == 1]
    if not alone:
        raise ValueError("all rows were measured with others at the same time; nothing to compare")
    simulated = predict(profile, [row.shape for row in alone])
    compared = [Compared(row, us) for row, us in zip(alone, simulated, strict=True)]
    settings = {key: str(value) for key, value in vars(options).items() if value is not None}
    found = document(compared, fitted, profile, settings)
    return found | {"note": NOTE} if options.arm == "rocm" else found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m hw_tests.calibration",
        description="Measure mori.io, fit a fabric for faultlab run --fabric, compare the two.",
    )
    add = parser.add_argument
    add("--arm", choices=sorted(ARMS), help="what is measured (sim)")
    add("--rows", type=file, metavar="CSV", help="take this table and measure nothing")
    add(
        "--hardware",
        type=name,
        default="measured",
        metavar="NAME",
        help="for the table and the fabric",
    )
    add("--backend", choices=["rdma", "xgmi", "rdma,xgmi"],
        help="XGMI is measured and compared, and not fitted (rdma)")  # fmt: skip
    add("--memory", choices=["cpu", "gpu"], help="for RDMA (cpu)")
    add("--fabric", default="mi300x-thor2", help="with --arm sim: what is there to be measured")
    add("--base", default="mi300x-thor2", metavar="NAME|FILE.toml",
        help="fabric to begin with; what rows do not tell stays near it (%(default)s)")  # fmt: skip
    add("--compare-only", action="store_true", help="fit nothing; compare with --base")
    add("--first", action="store_true", default=None, help="a third of the rows")
    add("--out", type=folder, required=True, metavar="FOLDER",
        help="for benchmark.csv, fabric.toml, parity.json and parity.txt")  # fmt: skip
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
