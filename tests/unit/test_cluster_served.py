"""Suites of the cluster launcher that serve a model: what starts where, and a start that fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from far_hosts import marked
from load_runs import engine_log
from served_runs import mark_of, report_of, start

from hw_tests.cluster.__main__ import main
from hw_tests.cluster.agent import Ended
from hw_tests.cluster.options import BadOptions, parse
from hw_tests.cluster.report import Report, write
from hw_tests.cluster.served import found, plan

TWO = ["--way", "ssh", "--producer", "node1=10.0.0.1", "--consumer", "node2=10.0.0.2", "--print"]
PREFILL, DECODE = ("vllm serve m --verify_reads all", "vllm serve m --port 9000 --verify_reads all")
SERVE = [*TWO, "--prefill", PREFILL, "--decode", DECODE]


def words_of(suite: str, *more: str) -> Sequence[str]:
    return plan(parse([*SERVE, "--suite", suite, *more])).client


def test_the_consumer_decodes_and_all_else_is_on_the_producer() -> None:
    """What load kills it starts itself; recall has all of it started, and asks prefill."""
    load = plan(parse([*SERVE, "--suite=load", "--control=c", "--", "--trace", "t"]))
    assert [(one.role, one.name, one.url) for one in load.servers] == [
        ("kv_consumer", "decode", "http://10.0.0.2:8000")
    ]
    words = list(load.client)
    assert words[words.index("--prefill") + 1] == PREFILL
    assert words[words.index("--decode-url") + 1] == "http://10.0.0.2:8000"
    assert "--decode" not in words
    assert words[-2:] == ["--trace", "t"]
    recall = plan(parse([*SERVE, "--suite=recall", "--port=decode=9000"]))
    assert [(one.role, one.name, one.url) for one in recall.servers] == [
        ("kv_producer", "prefill", "http://10.0.0.1:8000"),
        ("kv_consumer", "decode", "http://10.0.0.2:9000"),
        ("kv_producer", "router", "http://10.0.0.1:8080"),
    ]
    assert recall.servers[2].command.endswith(
        "-m hw_tests.router --port 8080 --prefill http://10.0.0.1:8000 "
        "--decode http://10.0.0.2:9000"
    )
    words = list(recall.client)
    assert words[words.index("--control-url") + 1] == "http://10.0.0.1:8000"
    for more, url in (("--control=c", "http://10.0.0.1:8001"), ("--control-url=u", "u")):
        words = list(words_of("recall", more))
        assert words[words.index("--control-url") + 1] == url
    words = list(words_of("load", "--control-url=u"))
    assert (words[words.index("--control-url") + 1], "--control" in words) == ("u", False)


@pytest.mark.parametrize("suite", ["load", "recall"])
def test_the_commands_are_printed_with_their_hosts(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SERVE, "--suite", suite, "--control=c"]) == 0
    said = capsys.readouterr().out
    assert f"# decode on node2, at http://10.0.0.2:8000\n{DECODE}\n" in said
    assert "# then on node1, in the source tree\n" in said
    assert f"-m hw_tests.{suite} " in said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--suite=load"], "--suite load needs --prefill, --decode, --control: a command"),
        (["--suite=recall", "--prefill=verify_reads=all"], "--suite recall needs --decode"),
        (
            ["--suite=recall", "--prefill=verify_reads=all", "--decode=verify_reads=off"],
            "--decode does not set .*all",
        ),
        (["--suite=first", "--port=dekode=1"], "needed NAME=PORT with a name of prefill, decode"),
        (["--suite=first", "--port=decode"], "--port decode: needed NAME=PORT"),
    ],
)
def test_what_cannot_be_served_is_refused(given: list[str], said: str) -> None:
    """Before anything is started, with what is needed."""
    with pytest.raises(BadOptions, match=said):
        parse([*TWO, *given])


def test_checks_of_a_client_are_tests_of_the_run(tmp_path: Path) -> None:
    """Red ones, what stopped it, lost codes, and a client that left nothing."""
    path = tmp_path / "x.json"
    checks = [
        {"name": "a", "passed": True, "seen": "1"},
        {"name": "b", "passed": False, "seen": "2"},
    ]
    load = {"phases": [{"name": "again", "checks": checks}], "stopped": "--deadline"}
    path.write_text(json.dumps(load))
    ended = Ended(1, "", {})
    assert [(t.name, t.how, t.reason) for t in found("load", path, ended)] == [
        ("load: again: a", "passed", "1"),
        ("load: again: b", "failed", "2"),
        ("load: to its end", "failed", "--deadline"),
    ]
    row = {"words": 500, "asked": 3, "found": {"router": 2}, "failed": {"router": 0, "control": 0}}
    rows = [{**row, "hit": hit} for hit in ("none", "whole")]
    verdict = {"passed": False, "verdict": "FAIL: 1 of"}
    path.write_text(json.dumps({"rows": rows, "lost": [[500, 0, "a kettle", "whole"]], **verdict}))
    assert [(t.name, t.how) for t in found("recall", path, ended)] == [
        ("recall: 500 words, local hit none", "passed"),
        ("recall: 500 words, local hit whole", "failed"),
        ("recall: as a whole", "failed"),
    ]
    for code, where in ((2, path), (0, tmp_path / "none.json")):
        (test,) = found("recall", where, Ended(code, "no such trace", {}))
        assert (test.how, "no such trace" in test.reason) == ("failed", True)


def test_registered_caches_are_in_the_report_of_the_run(tmp_path: Path) -> None:
    """From the logs of both hosts; a side without a word is a failed test."""
    logs = {name: tmp_path / f"{name}.log" for name in ("prefill", "decode")}
    logs["prefill"].write_text(engine_log("producer"))
    report = Report("sim", {})
    report.take_registered(logs)
    assert [(test.name, test.how) for test in report.tests] == [("registered caches", "failed")]
    assert "decode has logged no caches-registered" in report.tests[0].reason
    logs["decode"].write_text(engine_log("consumer"))
    report.take_registered(logs)
    assert report.tests[1].how == "passed"
    write(report, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "prefill and decode have registered the same" in page
    assert "<td>decode</td><td>consumer</td><td>0, 1</td>" in page


def test_a_decode_engine_that_does_not_start_ends_everything(tmp_path: Path) -> None:
    """Exit code 2, its last words in the report, its log kept, and nothing left on either host."""
    command = "sh -c 'echo verify_reads=all: no GPU; exit 3'"
    with start(tmp_path, "recall", commands={"decode": command}) as run:
        assert run.stdout is not None
        said = run.stdout.read()
    assert run.returncode == 2, said
    assert "on node2: decode has ended with exit code 3\nverify_reads=all: no GPU" in said
    document = report_of(tmp_path)
    assert document["verdict"].startswith("INCOMPLETE: on node2: decode has ended")
    assert (tmp_path / "out/consumer-node2/decode.log").read_text() == "verify_reads=all: no GPU\n"
    assert marked(mark_of(tmp_path)) == {}
