"""Measured, fitted, simulated again: in the simulator they agree, elsewhere the path runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from hw_tests.arms import Arm
from hw_tests.calibration.__main__ import main
from hw_tests.calibration.rows import COLUMNS
from hw_tests.conftest import cannot
from sim.fabric import FabricProfile, named_fabric
from sim.scenario import find_fabric

Document = dict[str, Any]


def calibrate(arm: str, out: Path, *more: str) -> tuple[Document, FabricProfile]:
    """The comparison, and the fabric as ``faultlab run --fabric`` reads it."""
    assert main(["--arm", arm, "--hardware", "here", "--out", str(out), *more]) == 0
    found: Document = json.loads((out / "parity.json").read_text())
    return found, find_fabric(str(out / "fabric.toml"))


def test_the_path_from_the_library_to_a_fabric(
    arm: Arm, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A table in the published columns, a fabric that is accepted, and an error for each row. Of
    the simulated library each row comes back within a per cent; the fit begins elsewhere."""
    name = request.config.getoption("--arm")
    base = ["--base", "mi300x-cx7"] if name == "sim" else []
    found, fabric = calibrate(name, tmp_path, "--first", *base)
    with (tmp_path / "benchmark.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(found["rows"]) >= 30
    assert {row["op"] for row in rows} == {"read", "write"}
    assert all(row["source"].startswith(f"hw_tests.calibration, arm {name}; ") for row in rows)
    assert all(float(row["latency_us_avg"]) > 0 for row in rows)
    assert fabric.name == "here"
    if name == "sim":
        assert max(abs(row["error"]) for row in found["rows"]) < 0.01
        assert fabric.nic_bytes_per_ns == pytest.approx(48.9, rel=0.002)
        assert fabric.read_landing_ns + fabric.read_completion_ns == pytest.approx(10025, abs=120)


@pytest.mark.soak
@pytest.mark.parametrize("begun", ["cx7", "mi300x-cx7"])
@pytest.mark.parametrize("given", ["mi300x-thor2", "cx7"])
def test_every_row_comes_back(
    request: pytest.FixtureRequest, given: str, begun: str, tmp_path: Path
) -> None:
    """Of all sweeps, whatever the fit begins with; and so do the numbers that rows can tell."""
    if request.config.getoption("--arm") != "sim":
        cannot(request.config, "only of the simulated library is it known what rows should tell")
    found, fabric = calibrate("sim", tmp_path, "--fabric", given, "--base", begun)
    assert max(abs(row["error"]) for row in found["rows"]) < 0.01
    truth = named_fabric(given)
    for key in ("call_ns", "post_ns", "work_request_ns", "nic_work_request_ns", "notify_ns"):
        assert getattr(fabric, key) == pytest.approx(getattr(truth, key), abs=5), key
