"""Suites of the cluster launcher that serve a model: what starts where, and a start that fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from far_hosts import ROOT, marked
from load_runs import engine_log
from served_runs import mark_of, report_of, start

from hw_tests.cluster.__main__ import main
from hw_tests.cluster.agent import Ended
from hw_tests.cluster.options import BadOptions, parse
from hw_tests.cluster.report import Report, Test, write
from hw_tests.cluster.served import plan, take
from hw_tests.outcome import NO_RECALL, NOT_COMPARED, UNVERIFIED

TWO = ["--way", "ssh", "--producer", "node1=10.0.0.1", "--consumer", "node2=10.0.0.2", "--print"]
PREFILL, DECODE = ("vllm serve m --verify_reads all", "vllm serve m --port 9000 --verify_reads all")
SERVE = [*TWO, "--prefill", PREFILL, "--decode", DECODE]
TRACE = ["--trace", "t"]
LOAD = [*SERVE[len(TWO) :], "--suite=load", "--control=c"]


def words_of(suite: str, *more: str) -> Sequence[str]:
    return plan(parse([*SERVE, "--suite", suite, *more])).client


def test_the_consumer_decodes_and_all_else_is_on_the_producer() -> None:
    """What load kills it starts itself; recall has all of it started, and asks prefill."""
    load = plan(parse([*SERVE, "--suite=load", "--control=c", "--", *TRACE]))
    assert [(one.role, one.name, one.url) for one in load.servers] == [
        ("kv_consumer", "decode", "http://10.0.0.2:8000")
    ]
    words = list(load.client)
    assert words[words.index("--prefill") + 1] == PREFILL
    assert words[words.index("--decode-url") + 1] == "http://10.0.0.2:8000"
    assert "--decode" not in words
    assert words[-2:] == TRACE
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
    for more, url in (
        ("--control=c", "http://10.0.0.1:8001"),
        ("--control-url=http://u", "http://u"),
    ):
        words = list(words_of("recall", more))
        assert words[words.index("--control-url") + 1] == url
    words = list(words_of("load", "--control-url=http://u", "--", *TRACE))
    assert (words[words.index("--control-url") + 1], "--control" in words) == ("http://u", False)


@pytest.mark.parametrize("suite", ["load", "recall"])
def test_the_commands_are_printed_with_their_hosts(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SERVE, "--suite", suite, "--control=c", "--", *TRACE]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# rocm: unverified on hardware: ")
    there = f"cd {ROOT} && env PYTHONPATH={ROOT} "
    assert f"# decode on node2, at http://10.0.0.2:8000\n{there}" in said
    assert f" {DECODE}\n" in said
    assert f"# then on node1\n{there}" in said
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
        ([*LOAD, "--port=router=8000"], "--port router=8000: prefill on the same host has it, too"),
        (LOAD, "--suite load needs more after --: --trace FILE, on the producer's host"),
        ([*LOAD, "--", *TRACE, "--out=x"], "--out after --: a run sets that itself"),
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
        {"name": "c", "passed": None, "seen": "3"},
    ]
    load = {"phases": [{"name": "again", "checks": checks}], "stopped": "--deadline"}
    path.write_text(json.dumps(load | {"outcome": "FAIL", "caveats": [UNVERIFIED, NOT_COMPARED]}))
    ended = Ended(1, "", {})
    report = taken("load", path, ended)
    assert (report.caveats, report.problems) == ([UNVERIFIED], [])
    assert [(t.name, t.how, t.reason) for t in report.tests] == [
        ("load: again: a", "passed", "1"),
        ("load: again: b", "failed", "2"),
        ("load: again: c", "not run", "3"),
        ("load: to its end", "failed", "--deadline"),
    ]
    document = recall_document("FAIL", found=2, lost=[[500, 0, "a kettle", "whole"]])
    path.write_text(json.dumps({**document, "checks": checks}))
    assert [(t.name, t.how) for t in taken("recall", path, ended).tests] == [
        ("recall: 500 words, local hit none", "passed"),
        ("recall: 500 words, local hit whole", "failed"),
        ("recall: a", "passed"),
        ("recall: b", "failed"),
        ("recall: c", "not run"),
        ("recall: as a whole", "failed"),
    ]
    for code, where in ((2, path), (0, path), (3, path), (0, tmp_path / "none.json")):
        (test,) = taken("recall", where, Ended(code, "no such trace", {})).tests
        assert (test.how, "no such trace" in test.reason) == ("failed", True)


def taken(suite: str, path: Path, ended: Ended) -> Report:
    """What a client that left ``path`` brings into a report."""
    report = Report("sim", {})
    take(report, suite, path, ended)
    return report


def recall_document(outcome: str, found: int, **more: object) -> dict[str, object]:
    """Of two rows of three questions; the control has found so many codes in each."""
    row = {"words": 500, "asked": 3, "same": 3, "failed": {"router": 0, "control": 0}}
    row["found"] = {"router": 2, "control": found}
    rows = [{**row, "hit": hit} for hit in ("none", "whole")]
    told = {"outcome": outcome, "verdict": f"{outcome}: why", "caveats": [], "compares": "codes"}
    return {"rows": rows, "lost": [], "checks": [], **told, **more}


def test_a_recall_that_proves_nothing_is_no_pass_of_the_run(tmp_path: Path) -> None:
    """Beside tests that passed; rows without a code that could be lost were not run."""
    path = tmp_path / "recall.json"
    path.write_text(json.dumps(recall_document("INCOMPLETE", found=0)))
    report = taken("recall", path, Ended(3, "", {}))
    assert [test.how for test in report.tests] == ["not run"] * 3
    report.tests.append(Test("node1", "decode serves to the end", "passed", 0.0, ""))
    assert report.verdict == "INCOMPLETE: recall: why (1 passed, 0 failed, 3 not run)"


def test_a_load_that_proves_nothing_is_no_pass_of_the_run(tmp_path: Path) -> None:
    """Beside checks that passed; the run tells why."""
    path = tmp_path / "load.json"
    checks = [{"name": name, "passed": how, "seen": ""} for name, how in (("a", True), ("b", None))]
    phases = {"phases": [{"name": "p", "checks": checks}], "stopped": None, "caveats": []}
    path.write_text(json.dumps(phases | {"outcome": "INCOMPLETE", "verdict": "INCOMPLETE: p: b"}))
    report = taken("load", path, Ended(3, "", {}))
    assert report.verdict == "INCOMPLETE: load: p: b (1 passed, 0 failed, 1 not run)"


@pytest.mark.parametrize(("found", "how"), [(3, "passed"), (2, "passed"), (1, "not run")])
def test_a_row_of_which_too_few_could_be_lost_was_not_run(
    found: int, how: str, tmp_path: Path
) -> None:
    """As in recall's own verdict: the control has to have found half of its codes."""
    path = tmp_path / "recall.json"
    path.write_text(json.dumps(recall_document("pass", found)))
    assert [test.how for test in taken("recall", path, Ended(0, "", {})).tests][:2] == [how, how]


def test_the_same_words_that_prove_nothing_were_not_run(tmp_path: Path) -> None:
    """As of a control that answers every question alike."""
    path = tmp_path / "recall.json"
    path.write_text(json.dumps(recall_document("INCOMPLETE", 0, compares="same words")))
    report = taken("recall", path, Ended(3, "", {}))
    assert [test.how for test in report.tests] == ["not run"] * 3


def test_a_document_that_is_cut_is_a_failure(tmp_path: Path) -> None:
    """Also beside an exit code that says otherwise."""
    path = tmp_path / "load.json"
    path.write_text('{"outcome": "pa')
    (test,) = taken("load", path, Ended(0, "", {})).tests
    assert (test.how, "cut or foreign" in test.reason) == ("failed", True)


@pytest.mark.parametrize(("same", "how"), [(3, "passed"), (2, "failed")])
def test_the_same_words_are_judged_by_the_words(same: int, how: str, tmp_path: Path) -> None:
    """Codes that nobody finds do not matter then, and the verdict says so."""
    document = recall_document("pass", 0, compares="same words", caveats=[NO_RECALL])
    document["rows"] = [{**row, "same": same} for row in cast("list[Any]", document["rows"])]
    path = tmp_path / "recall.json"
    path.write_text(json.dumps(document))
    report = taken("recall", path, Ended(0, "", {}))
    assert [test.how for test in report.tests] == [how, how, "passed"]
    assert report.caveats == [NO_RECALL]
    assert report.verdict.startswith("pass, recall not judged: " if same == 3 else "FAIL: ")


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
    assert "INCOMPLETE: on node2: decode has ended with exit code 3 (" in said
    assert "\nverify_reads=all: no GPU\n" in said
    document = report_of(tmp_path)
    assert document["verdict"].startswith("INCOMPLETE: on node2: decode has ended")
    assert (tmp_path / "out/consumer-node2/decode.log").read_text() == "verify_reads=all: no GPU\n"
    assert marked(mark_of(tmp_path)) == {}
