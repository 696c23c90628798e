from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from faults.bench.mori_io import predict
from faults.bench.published import Measurement, published
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from sim.fabric import CX7, FabricProfile, fabric_names, named_fabric

ROWS = list(published())
# What a run of the whole tests can afford; tests/soak has every row.
FEW_BYTES = 1 << 20
QUICK = [row for row in ROWS if row.message_bytes * row.batch <= FEW_BYTES][::2]


def _id(row: Measurement) -> str:
    what = f"{row.message_bytes}x{row.batch}-{row.queue_pairs}qp"
    return f"{row.fabric.removeprefix('mi300x-')}-{row.operation}-{what}"


@pytest.mark.parametrize("row", QUICK, ids=_id)
def test_the_benchmark_on_a_simulated_fabric_takes_what_was_published(row: Measurement) -> None:
    """Within 10 %, from the call to the end of the wait."""
    assert abs(predict(named_fabric(row.fabric), row, iterations=1).error) <= 0.10


@pytest.mark.parametrize("row", [r for r in QUICK if r.batch == 1 and r.queue_pairs == 1], ids=_id)
def test_the_default_fabric_meets_the_tables_of_single_messages(row: Measurement) -> None:
    """Within 4 %, although it was not made for batches."""
    assert abs(predict(CX7, row, iterations=1).error) <= 0.04


def test_the_tables_are_whole() -> None:
    """Five tables: reads and writes of two NICs, and a sweep over batches; bandwidth is payload
    over latency in every row, so that no figure was copied wrongly."""
    tables = [(row.fabric, row.operation, row.queue_pairs) for row in ROWS]
    assert {table: tables.count(table) for table in tables} == {
        ("mi300x-thor2", "read", 2): 18,
        ("mi300x-thor2", "write", 4): 18,
        ("mi300x-thor2", "write", 16): 16,
        ("mi300x-cx7", "write", 1): 17,
        ("mi300x-cx7", "read", 1): 17,
    }
    for row in ROWS:
        rate = row.message_bytes * row.batch / row.latency_us / 1000
        # The mean of rates and the rate of the mean time differ a little.
        assert row.gb_per_s == pytest.approx(rate, rel=0.01, abs=0.0101)


def test_a_slower_host_is_seen_in_the_prediction() -> None:
    """The table is the outcome of a run: 100 ns more for each item are 100 ns more for each."""
    (row,) = [r for r in ROWS if r.batch == 1024]
    profile = named_fabric(row.fabric)
    slower = msgspec.structs.replace(profile, item_ns=profile.item_ns + 100)
    added_us = predict(slower, row, 1).latency_us - predict(profile, row, 1).latency_us
    assert added_us == pytest.approx(102.4)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_preparing_work_requests_delays_the_first_of_them(operation: str) -> None:
    """Time before the first post is not hidden behind the wire, however long that takes."""
    (row,) = [r for r in ROWS if (r.message_bytes, r.batch, r.operation) == (4096, 128, "write")]
    row = msgspec.structs.replace(row, operation=operation)
    key = f"{operation}_prepare_ns"
    plain = msgspec.structs.replace(CX7, **{key: 0})
    slower = msgspec.structs.replace(CX7, **{key: 100})
    added_us = predict(slower, row, 1).latency_us - predict(plain, row, 1).latency_us
    assert added_us == pytest.approx(12.8)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_initiators_that_share_a_nic_have_equal_parts_of_it(operation: str) -> None:
    """Four at once on one NIC: each message takes four times as long on the wire, and nothing else
    longer; with a NIC for each it is as if they were alone."""
    (row,) = [
        r for r in ROWS
        if (r.fabric, r.operation, r.message_bytes) == ("mi300x-cx7", operation, 1 << 20)
    ]  # fmt: skip
    four = msgspec.structs.replace(row, device_pairs=4)
    profile = named_fabric(row.fabric)
    shared = msgspec.structs.replace(profile, nics_per_node=1)
    rate = profile.read_bytes_per_ns if operation == "read" else profile.nic_bytes_per_ns
    alone_us = predict(shared, row, 1).latency_us
    added_us = predict(shared, four, 1).latency_us - alone_us
    assert added_us == pytest.approx(3 * row.message_bytes / rate / 1000, rel=0.001)
    assert predict(profile, four, 1).latency_us == pytest.approx(alone_us)


def test_the_default_fabric_is_as_recorded() -> None:
    """Runs that are written down depend on it: another guess needs another name."""
    known = FabricProfile(
        name="cx7",
        nic_bytes_per_ns=49.561,
        read_bytes_per_ns=44.860,
        queue_pair_bytes_per_ns=49.561,
        nic_work_request_ns=32,
        call_ns=500,
        post_ns=550,
        work_request_ns=50,
        item_ns=100,
        write_landing_ns=2_327,
        write_completion_ns=2_300,
        read_landing_ns=4_209,
        read_completion_ns=1_200,
    )
    assert known == CX7


@pytest.mark.parametrize("name", fabric_names())
def test_a_named_fabric_is_called_as_its_file(name: str) -> None:
    """So that what a run prints can be asked for."""
    assert named_fabric(name).name == name


def test_a_fabric_of_ones_own_is_compared_row_by_row(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row with the published and the predicted figures and the error."""
    rows = [row for row in ROWS if row.fabric == "mi300x-cx7" and row.message_bytes == 1024]
    monkeypatch.setattr("faults.cli.fabrics.published", lambda: iter(rows))
    file = tmp_path / "my.toml"
    text = (Path(dispatch.__file__).parents[2] / "sim/fabric/fabrics/cx7.toml").read_text()
    file.write_text(text.replace("call_ns = 500", "call_ns = 3_500"))
    asked = ["fabrics", str(file), "--against", "mi300x-cx7"]
    assert dispatch.run([*asked, "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    errors = {row["operation"]: row["error"] for row in document["rows"]}
    assert errors == pytest.approx({"write": 3 / 5.87, "read": 3 / 6.74}, abs=0.02)
    assert document["rows_beyond_aim"] == 2
    assert dispatch.run(asked) == ExitCode.OK
    assert "2 beyond 10%" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cx8"], "no fabric 'cx8' (did you mean 'cx7'?)"),
        (["cx7"], "cx7: nothing was published about it"),
        (["--against", "cx7"], "say which fabric"),
        (["gone.toml"], "gone.toml: cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    """With what there is instead."""
    assert dispatch.run(["fabrics", *arguments]) == ExitCode.BAD_USAGE
    assert problem in capsys.readouterr().err
