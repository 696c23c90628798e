"""What options of the programs for hardware take, and what they refuse."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hw_tests import option_types as types
from hw_tests.calibration.__main__ import main as calibrate
from hw_tests.cluster.__main__ import main as on_two_hosts
from hw_tests.cluster.by_hand import main as by_hand
from hw_tests.cluster.supervisor import main as supervise
from hw_tests.load.__main__ import main as load
from hw_tests.recall.__main__ import main as recall
from hw_tests.router.__main__ import main as route

Parse = Callable[[str], Any]
GOOD: list[tuple[Parse, str, Any]] = [
    (types.port, "1", 1),
    (types.port, "65535", 65535),
    (types.address, "node2:6300", "node2:6300"),
    (types.address, "::1:6300", "::1:6300"),
    (types.seconds, "0.5", 0.5),
    (types.factor, "1e3", 1000.0),
    (types.share, "0", 0.0),
    (types.share, "1", 1.0),
    (types.count, "1", 1),
    (types.counts, "1,20", [1, 20]),
    (types.natural, "0", 0),
    (types.url, "https://node2:1/", "https://node2:1"),
    (types.command, "vllm serve '{\"a\": 1}'", "vllm serve '{\"a\": 1}'"),
]
BAD: list[tuple[Parse, str, str]] = [
    *((types.port, text, "a port from 1 to 65535") for text in ("0", "65536", "-1", "http", "1.0")),
    *((types.address, text, "HOST:PORT") for text in ("node2", ":6300", "")),
    *((types.address, text, "a port") for text in ("node2:", "node2:70000", "node2:http")),
    *((types.seconds, text, "seconds above 0") for text in ("0", "-1", "nan", "inf", "soon", "")),
    *((types.factor, text, "a number above 0") for text in ("0", "nan", "-inf", "x")),
    *((types.share, text, "from 0 to 1") for text in ("-0.1", "1.1", "nan", "10%")),
    *((types.count, text, "above 0") for text in ("0", "-1", "1.5", "²", "")),
    *((types.counts, text, "above 0") for text in ("", "1,", "1,0")),
    *((types.natural, text, "0 or more") for text in ("-1", "x", "")),
    *((types.url, text, "a URL such as") for text in ("node2:8000", "ftp://node2", "")),
    (types.command, "vllm 'serve", "every quote closed"),
    (types.command, " ", "expected a command"),
    (types.name, " ", "expected a name"),
    (types.file, "/proc", "a file that is there"),
]


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_what_can_be_is_taken(parse: Parse, text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(("parse", "text", "expected"), BAD)
def test_what_cannot_be_is_named_with_what_was_expected(
    parse: Parse, text: str, expected: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as error:
        parse(text)
    assert repr(text.rsplit(",", maxsplit=1)[-1].rpartition(":")[2])[1:-1] in str(error.value)
    assert expected in str(error.value)


def test_a_report_is_refused_before_hours_of_work_have_gone_into_it(tmp_path: Path) -> None:
    assert types.json_file(str(tmp_path / "a.json")) == tmp_path / "a.json"
    assert list(tmp_path.iterdir()) == []
    assert types.json_file(str(tmp_path / "new/a.json")).parent.is_dir()
    for text, said in (
        (str(tmp_path / "a.txt"), r"a\.txt'; expected NAME\.json"),
        ("/proc/a.json", r"'/proc': .* expected a folder that can be made and written to"),
        ("/proc/new/a.json", "'/proc/new': No such file or directory; expected a folder"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=said):
            types.json_file(text)


FOLDER = tempfile.gettempdir()
OUT = f"{FOLDER}/never-written.json"
ROUTER = ["--prefill", "http://a", "--decode", "http://b", "--port"]
SERVE = 'vllm serve --kv-transfer-config \'{"verify_reads": "all"}\''
LOAD = ["--trace", "t", "--router-port", "1", "--decode-url", "http://d"]
LOAD += ["--control-url", "http://c", "--prefill-url", "http://p", "--prefill", SERVE, "--out", OUT]
RECALL = ["--url", "http://a", "--control-url", "http://b", "--words", "1", "--out", OUT]
REFUSED = [
    (route, [*ROUTER, "70000"], "--port: '70000'"),
    (route, [*ROUTER, "0"], "--port: '0'"),
    (route, [*ROUTER, "1", "--ping-port", "0"], "--ping-port: '0'"),
    (route, [*ROUTER, "1", "--retries", "-1"], "--retries: '-1'"),
    (route, [*ROUTER, "1", "--timeout", "nan"], "--timeout: 'nan'"),
    (load, [*LOAD, "--deadline", "nan"], "--deadline: 'nan'"),
    (load, [*LOAD, "--away", "-1"], "--away: '-1'"),
    (load, [*LOAD, "--requests", "0"], "--requests: '0'"),
    (load, [*LOAD, "--time-scale", "0"], "--time-scale: '0'"),
    (load, [*LOAD, "--vocab-size", "0"], "--vocab-size: '0'"),
    (load, [*LOAD, "--acceptance-gap", "nan"], "--acceptance-gap: 'nan'"),
    (load, [*LOAD, "--router-port", "65536"], "--router-port: '65536'"),
    (load, [*LOAD, "--decode", "vllm 'serve"], "--decode: \"vllm 'serve\""),
    (load, [*LOAD, "--decode-url", "node2:8000"], "--decode-url: 'node2:8000'"),
    (recall, [*RECALL, "--url", "node2:8000"], "--url: 'node2:8000'"),
    (recall, [*RECALL, "--timeout", "inf"], "--timeout: 'inf'"),
    (recall, [*RECALL, "--acceptance-gap", "-1"], "--acceptance-gap: '-1'"),
    (recall, [*RECALL, "--first-seed", "x"], "--first-seed: 'x'"),
    (recall, [*RECALL, "--out", "/proc/x.json"], "--out: '/proc': "),
    (on_two_hosts, ["--deadline", "nan"], "--deadline: 'nan'"),
    (on_two_hosts, ["--silence", "-1"], "--silence: '-1'"),
    (on_two_hosts, ["--start-within", "inf"], "--start-within: 'inf'"),
    (on_two_hosts, ["--port", "decode=70000"], "--port: '70000'"),
    (on_two_hosts, ["--port", "dekode=1"], "needed NAME=PORT with a name of prefill, decode"),
    (on_two_hosts, ["--port", "decode"], "'decode'; needed NAME=PORT"),
    (on_two_hosts, ["--ssh", "ssh '"], "--ssh: \"ssh '\""),
    (on_two_hosts, ["--inside", "docker '"], "--inside: \"docker '\""),
    (on_two_hosts, ["--prefill", "vllm '"], "--prefill: \"vllm '\""),
    (on_two_hosts, ["--control-url", "node2"], "--control-url: 'node2'"),
    (supervise, ["--deadline", "nan", "--", "true"], "--deadline: 'nan'"),
    (supervise, ["--deadline", "1", "--silence", "0", "--", "true"], "--silence: '0'"),
    (by_hand, ["listen", "70000", "token"], "'70000'; expected a port"),
    (by_hand, ["call", "node2:70000", "token", "--", "true"], "'70000'; expected a port"),
    (by_hand, ["call", "node2", "token", "--", "true"], "expected HOST:PORT"),
    (by_hand, ["call", "node2:1", "token"], "the following arguments are required: command"),
    (calibrate, ["--out", "/proc/x"], "--out: '/proc/x'"),
    (calibrate, ["--out", FOLDER, "--hardware="], "--hardware: ''"),
    (calibrate, ["--out", FOLDER, "--rows", "no.csv"], "--rows: 'no.csv'"),
    (calibrate, ["--out", FOLDER, "--rows", __file__, "--arm", "sim"], "--arm says what to"),
    (calibrate, ["--out", FOLDER, "--rows", __file__, "--first"], "--first says what to"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("main", "given", "said"), REFUSED, ids=[f"{m.__module__}-{s[:20]}" for m, _, s in REFUSED]
)
def test_every_program_refuses_what_cannot_be(
    main: Callable[[list[str]], object],
    given: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before anything is started, with the option and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
