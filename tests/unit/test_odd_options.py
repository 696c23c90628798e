"""Odd options and files of the programs for hardware: told in a line, never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from hw_tests import option_types as types
from hw_tests.calibration.__main__ import _parser as calibration_parser
from hw_tests.calibration.__main__ import main as calibrate
from hw_tests.calibration.fit import fit
from hw_tests.calibration.report import fabric_toml
from hw_tests.calibration.rows import COLUMNS, Row, Shape
from hw_tests.cluster import by_hand, supervisor
from hw_tests.cluster.__main__ import main as on_two_hosts
from hw_tests.cluster.options import _parser as cluster_parser
from hw_tests.load.__main__ import _parser as load_parser
from hw_tests.load.__main__ import main as load
from hw_tests.recall.__main__ import _parser as recall_parser
from hw_tests.recall.__main__ import main as recall
from hw_tests.router.__main__ import main as route
from hw_tests.same_server import same_server
from sim.fabric import named_fabric
from sim.scenario import find_fabric

ODD = (
    *("", " ", "-", "--", "=", ":", "a=", "=b", "a..b", ".", "..", "/", "%s", "{}", "'", '"'),
    *("0", "-0", "-1", "+1", "1_0", "1e308", "1e-320", "1e999", "nan", "inf", "0x10", "\u0661"),
    *("9" * 25, "9" * 5000, "a" * 300, "a" * 70000, "/" + "a" * 300, "\udcff", "a\ud800"),
    *("\n", "a\nb", "\x1b[2J", "\u202e", "\U0001f984", "caf\u00e9", "\0"),
    *("http://a..b:8000", "http://", "http://[::1", "http://a:99999", "http://a:0", "http://a b"),
    *("a..b:80", "[::1]:80", "::1:80", ":80", "node2:", "node2:" + "9" * 30, "http://a?b#c"),
    *("/dev/null", "/proc/1/mem", "/proc/self/cmdline", "/dev/null/x.json", "x.json/y.json"),
)
FEW = ("", "--", "a..b", "9" * 25, "a" * 300, "\udcff", "1e308", "http://a..b:1", "\U0001f984")
BOTH = pytest.mark.parametrize("odd", [FEW, pytest.param(ODD, marks=pytest.mark.soak)])
TYPES = (
    *(types.port, types.address, types.host, types.seconds, types.factor, types.share, types.count),
    *(types.counts, types.natural, types.url, types.command, types.name, types.file, types.folder),
    types.json_file,
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders with odd names are made here; no name is looked up."""
    monkeypatch.chdir(tmp_path)

    def unknown(name: str, *_: object, **_more: object) -> None:
        name.encode("idna")
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    monkeypatch.setattr("socket.gethostbyname", unknown)


@pytest.mark.parametrize("parse", TYPES, ids=lambda parse: parse.__name__)
def test_a_type_takes_or_refuses_whatever_it_gets(parse: Callable[[str], object]) -> None:
    for text in ODD:
        if "\0" in text or "\ud800" in text:  # which `parsed` has refused
            continue
        with contextlib.suppress(argparse.ArgumentTypeError):
            parse(text)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((types.url, f"http://{host}:1") for host in ("a..b", "", "a" * 70, "a b", "[::1")),
        *((types.url, url) for url in ("http://a:0", "http://a:99999", "http://a?b", "http://a#b")),
        *((types.address, f"{host}:1") for host in ("a..b", "a" * 300, "a/b", "u@h", "a b")),
        *((types.seconds, text) for text in ("1e8", "1e308", "1e-320", "nan")),
        *((types.factor, text) for text in ("1e7", "1e308", "inf")),
        *((types.count, text) for text in ("10000001", "9" * 25, "9" * 5000)),
        *((types.natural, text) for text in ("9" * 25, "9" * 5000)),
        *((types.name, text) for text in ("a" * 101, "a\nb", "\x1b")),
        *((types.file, text) for text in ("a" * 300, "/proc/self")),
        *((types.json_file, text) for text in ("a" * 300 + ".json", "a" * 300 + "/b.json")),
    ],
)
def test_what_would_hang_or_overflow_later_is_refused(
    parse: Callable[[str], object], text: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected"):
        parse(text)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--x=\udcff", "expected text that is UTF-8"),
        ("a\0b", "expected text that is UTF-8"),
        ("--x=--", "expected a value after ="),
    ],
)
def test_a_word_that_could_not_be_printed_is_refused(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever option it is of; of the last one argparse would make an empty list."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--x")
    parser.add_argument("words", nargs="*")
    assert types.parsed(parser, ["--x=caf\u00e9", "\U0001f984"]).x == "caf\u00e9"
    with pytest.raises(SystemExit):
        types.parsed(parser, [word])
    assert said in capsys.readouterr().err


def takes_or_refuses(main: Callable[[Sequence[str]], object], words: list[str]) -> None:
    """It ends with exit code 2, or as it does without what is odd."""
    try:
        code = main(words)
    except SystemExit as ended:
        code = ended.code
    assert code in (0, 1, 2), words


def options_of(build: Callable[[], argparse.ArgumentParser]) -> list[tuple[str, bool]]:
    """Each option of a parser and whether it has a value."""
    return [(action.option_strings[-1], action.nargs != 0) for action in build()._actions
            if action.option_strings and action.dest != "help"]  # fmt: skip


CLUSTER = ["--print", "--way=ssh", "--producer=node1=10.0.0.1", "--consumer=node2=10.0.0.2"]
LOAD = ["--trace", "no-such", "--router-port", "1", "--decode-url", "http://d:1", "--out=a.json",
        "--control-url", "http://c:1", "--prefill-url", "http://p:1",
        "--prefill", "serve verify_reads=all"]  # fmt: skip
RECALL = ["--url=http://127.0.0.1:9", "--control-url=http://127.0.0.1:9", "--words=9",
          "--out=a.json"]  # fmt: skip
CALIBRATE = ["--compare-only", "--rows=rows.csv", "--out=out"]


def every_option() -> Iterator[tuple[str, Callable[[Sequence[str]], object], list[str], str]]:
    for name, build, main, words in (
        ("cluster", cluster_parser, on_two_hosts, CLUSTER),
        ("load", load_parser, load, LOAD),
        ("recall", recall_parser, recall, RECALL),
        ("calibration", calibration_parser, calibrate, CALIBRATE),
    ):
        for option, has_value in options_of(build):
            if has_value:
                yield name, main, words, option


@BOTH
@pytest.mark.parametrize(
    ("main", "words", "option"),
    [pytest.param(main, words, option, id=f"{name}{option}")
     for name, main, words, option in every_option()],
)  # fmt: skip
def test_no_option_of_a_program_gives_a_traceback(
    main: Callable[[Sequence[str]], object], words: list[str], option: str, odd: Sequence[str]
) -> None:
    """Nothing is started: the launcher prints only, and what the others need is not there."""
    Path("rows.csv").write_text("no table")
    for text in odd:
        takes_or_refuses(main, [*words, f"{option}={text}"])


@BOTH
def test_programs_of_a_host_give_no_traceback(odd: Sequence[str]) -> None:
    """For want of a port, of a command, or of a host."""
    with closing(socket.create_server(("", 0))) as taken:
        port = str(taken.getsockname()[1])
        assert by_hand.main(["listen", port, "token"]) == 2
        for text in odd:
            takes_or_refuses(route, ["--prefill=http://a", "--decode=http://b", f"--port={port}",
                            f"--host={text}"])  # fmt: skip
            takes_or_refuses(by_hand.main, ["call", f"{text}:1", "token", "--", "true"])
    handlers = "hw_tests.cluster.supervisor.signal.signal"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handlers, lambda *_: None)
        assert supervisor.main(["--deadline=9", "--", "no-such-command"]) == 1


@pytest.mark.parametrize("url", ["http://a..b:8000", "http://" + "a" * 300])
def test_a_host_that_cannot_be_is_no_server(url: str) -> None:
    assert not same_server(url, "http://127.0.0.1:8000")


HEAD = ",".join(COLUMNS)
GOOD = ["x", "rdma", "read", "8", "1", "1", "0.1", "5", "s"]


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *((column, text) for column in (3, 4, 5)
          for text in ("9" * 25, "9" * 5000, "0", "-1", "1.5", "1e3", "", "nan")),
        *((7, text) for text in ("1e-300", "1e300", "9" * 5000, "-5", "", "inf")),
        *((8, text) for text in (f"{'9' * 25} calls in a request", f"{'9' * 5000}+1 devices")),
        *((column, "a" * 140_000) for column in (0, 8)),
        *((1, text) for text in ("RDMA", "", "\0")),
    ],
)  # fmt: skip
def test_a_table_with_an_odd_cell_is_refused(
    column: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, with the file and what is expected; nothing is fitted or simulated."""
    cells = [text if at == column else cell for at, cell in enumerate(GOOD)]
    Path("rows.csv").write_text(f"{HEAD}\n{','.join(cells)}\n")
    with pytest.raises(SystemExit) as ended:
        calibrate(CALIBRATE)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "rows.csv" in said
    assert "expected" in said


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", HEAD.encode(), f"{HEAD}\nx,rdma".encode(), f'{HEAD}\n"x,rdma'.encode(),
     f"{HEAD}\n{'x,' * 40}".encode(), f"\ufeff{HEAD}\n".encode()],
)  # fmt: skip
def test_a_file_that_is_no_table_is_refused(
    content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("rows.csv").write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        calibrate(CALIBRATE)
    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_a_fabric_reads_as_it_was_written_whatever_it_is_called() -> None:
    """Also with a character that JSON escapes in another way than TOML, and a file with a break."""
    rows = [Row("x", Shape("rdma", "read", 8, 1, 1), 5.0, "s")]
    found = fit(rows, named_fabric("mi300x-thor2"), 'mi300x \U0001f984 "caf\u00e9"')
    Path("fabric.toml").write_text(fabric_toml(found, "1 rows of a\nb\x01.csv"))
    assert find_fabric("fabric.toml") == found.profile
