"""Tables of latencies: read, explained by a fabric's numbers, and what they leave open."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from hw_tests.calibration import __main__ as command
from hw_tests.calibration.__main__ import main
from hw_tests.calibration.fit import fit
from hw_tests.calibration.model import latency_ns, numbers_of
from hw_tests.calibration.on_sim import predict
from hw_tests.calibration.plan import shapes
from hw_tests.calibration.report import fabric_toml
from hw_tests.calibration.rows import COLUMNS, Row, Shape, conditions, read_rows, write_rows
from sim.fabric import FabricProfile, named_fabric
from sim.scenario import find_fabric

CX7, THOR2 = named_fabric("cx7"), named_fabric("mi300x-thor2")
NARROW = replace(THOR2, queue_pair_bytes_per_ns=28.0)


def rows_of(profile: FabricProfile, noise: float = 0.0, **only: object) -> list[Row]:
    """What the closed form says of the shapes that have these values."""
    chance = random.Random(1)
    return [
        Row("x", shape, latency_ns(numbers_of(profile), shape) / 1e3 * (1 + chance.gauss(0, noise)),
            conditions("sim", shape, "cpu", 1))
        for shape in shapes("rdma", first=True)
        if all(getattr(shape, name) == value for name, value in only.items())
    ]  # fmt: skip


@pytest.mark.parametrize("profile", [CX7, THOR2, NARROW], ids=["cx7", "thor2", "narrow"])
def test_the_closed_form_says_what_the_simulator_does(profile: FabricProfile) -> None:
    """Of the host, the wire, its sharing, the order of completions, and several calls."""
    asked = [
        Shape("rdma", op, *numbers)
        for op in ("read", "write")
        for numbers in (
            (1024, 1, 1, 1), (1 << 20, 1, 1, 1), (8, 128, 4, 1), (65536, 32, 4, 1),
            (1024, 4, 16, 1), (1024, 1, 1, 4), (1024, 8, 4, 3),
        )
    ]  # fmt: skip
    for shape, simulated_us in zip(asked, predict(profile, asked), strict=True):
        assert latency_ns(numbers_of(profile), shape) == pytest.approx(
            simulated_us * 1e3, rel=0.002
        )


def test_noise_of_two_per_cent_moves_no_row_by_much_more() -> None:
    """The numbers stay near the true ones where rows tell them."""
    found = fit(rows_of(THOR2, noise=0.02), THOR2, "noisy")
    assert found.rms < 0.025
    for shape in shapes("rdma", first=True):
        true_ns = latency_ns(numbers_of(THOR2), shape)
        assert latency_ns(numbers_of(found.profile), shape) == pytest.approx(true_ns, rel=0.04)
    assert found.profile.post_ns == pytest.approx(THOR2.post_ns, rel=0.1)


def test_what_rows_do_not_tell_is_named_and_kept() -> None:
    """Single messages on one queue pair: their sum is known, what is of what is not."""
    lone = rows_of(THOR2, batch=1, qps=1, calls=1)
    found = fit(lone, replace(CX7, notify_ns=123), "lone")
    assert found.profile.notify_ns == 123
    assert found.undetermined["notify_ns"] == []
    assert "call_ns" in found.undetermined["write_landing_ns"]
    for row in lone:
        fitted_us = latency_ns(numbers_of(found.profile), row.shape) / 1e3
        assert fitted_us == pytest.approx(row.latency_us, rel=0.01)


def test_the_file_says_what_it_is_made_of(tmp_path: Path) -> None:
    """And reads as the same fabric."""
    found = fit(
        rows_of(THOR2, batch=1, qps=1, calls=1), replace(THOR2, max_message_bytes=2**30), "my own"
    )
    path = tmp_path / "fabric.toml"
    path.write_text(fabric_toml(found, "8 rows of somewhere"))
    assert find_fabric(str(path)) == found.profile
    assert found.profile.max_message_bytes == 2**30
    text = path.read_text()
    assert "# Fitted to 8 rows of somewhere" in text
    assert "# notify_ns: the rows do not depend on it; kept" in text


@pytest.mark.parametrize("arm", ["rocm", "sim"])
def test_what_was_never_tried_on_hardware_says_so(
    arm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In all that people read and programs, of the arm that is about hardware."""
    monkeypatch.setattr(command, "_measured", lambda _options: rows_of(THOR2, batch=1, calls=1))
    assert main(["--arm", arm, "--hardware", "here", "--out", str(tmp_path)]) == 0
    told = [capsys.readouterr().out]
    told += [(tmp_path / name).read_text() for name in ("parity.json", "parity.txt")]
    assert ["unverified on hardware" in each for each in told] == [arm == "rocm"] * 3


def test_a_run_that_fails_leaves_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    """But for what it was to begin with, or would not have written."""
    written = ("benchmark.csv", "fabric.toml", "parity.json", "parity.txt")
    for more, left in (
        ([], []),
        (["--compare-only"], ["fabric.toml"]),
        (["--base", str(tmp_path / "fabric.toml")], ["fabric.toml"]),
    ):
        for name in written:
            (tmp_path / name).write_text(fabric_toml(fit(rows_of(CX7), CX7, "old"), "x"))
        with pytest.raises(SystemExit):
            main(["--arm", "rocm", "--out", str(tmp_path), *more])
        assert [name for name in written if (tmp_path / name).exists()] == left


def test_a_table_reads_as_it_was_written(tmp_path: Path) -> None:
    """With the number of calls, for which the published columns have no place but the source."""
    rows = rows_of(THOR2)
    assert {row.shape.calls for row in rows} > {1}
    write_rows(tmp_path / "rows.csv", rows)
    again = read_rows(tmp_path / "rows.csv")
    assert [row.shape for row in again] == [row.shape for row in rows]
    for one, other in zip(again, rows, strict=True):
        assert one.latency_us == pytest.approx(other.latency_us, rel=1e-5)


def test_a_published_row_has_its_initiators(tmp_path: Path) -> None:
    """Rows of several at once are not fitted, as nobody knows what each got."""
    path = tmp_path / "rows.csv"
    path.write_text(
        ",".join(COLUMNS) + "\nThor2,rdma,read,8,256,2,0.02,120.65,a table; 8+8 devices\n"
    )
    (row,) = read_rows(path)
    assert (row.devices, row.shape) == (8, Shape("rdma", "read", 8, 256, 2))
    with pytest.raises(ValueError, match="none of 1 rows can be fitted"):
        fit([row], THOR2, "none")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,b\n1,2\n", "has no column hardware, backend"),
        (",".join(COLUMNS) + "\nx,rdma,read,many,1,1,1,1,s\n", "line 2: invalid literal"),
        (",".join(COLUMNS) + "\nx,rdma,read,8,1,1,1,0,s\n", "read or write, numbers"),
        (",".join(COLUMNS) + "\nx,rdma,read,8,1,1,1,nan,s\n", "and a latency in us of"),
        (",".join(COLUMNS) + "\nx,rdma,read,8,1,1,1,inf,s\n", "and a latency in us of"),
        (",".join(COLUMNS) + "\nx,tcp,read,8,1,1,1,5,s\n", "expected rdma or xgmi"),
        (",".join(COLUMNS) + "\nx,rdma,send,8,1,1,1,5,s\n", "expected rdma or xgmi, read or write"),
        (",".join(COLUMNS) + "\nx,rdma,read,8,65536,1,1,5,99 calls in a request\n", "in all"),
    ],
)
def test_a_wrong_table_is_refused(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the line and what is expected."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["--compare-only", "--rows", str(path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("call_ns = 0.5\n", "mine.toml:1:1: call_ns: is 0.5, expected an integer, 0 or more"),
        ("call_nanos = 5\n", "mine.toml:1:1: call_nanos: unknown key (did you mean 'call_ns'?)"),
        (
            "call_ns = \n",
            "mine.toml:1:11: is not TOML: Invalid value, in 'call_ns ='; expected KEY",
        ),
        ("call_ns = " + "[" * 9999, "mine.toml: is nested too deeply to be read; expected KEY ="),
        ("", "mine.toml: name: missing; expected text that is not empty"),
        (None, "mine.toml: cannot be read: No such file or directory"),
    ],
)
@pytest.mark.parametrize("option", ["--base", "--fabric"])
def test_a_fabric_that_cannot_be_used_is_refused(
    option: str, text: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the place, the value and what is expected; nothing was measured."""
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["--first", option, str(path), "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []
