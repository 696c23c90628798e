"""The machine of the tests beside those of the engines, and how a run between them ends."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from told_hosts import connected, facts, told_hosts

from hw_tests.child import ChildFailed
from hw_tests.cluster.__main__ import main
from hw_tests.cluster.agent import Agent
from hw_tests.cluster.facts import SOURCES, differences, facts_of
from hw_tests.cluster.options import parse
from hw_tests.cluster.report import BOTH, HERE, Report, Test
from hw_tests.cluster.run import NotReady, examine_hosts, run_pair, take
from hw_tests.cluster.suites import SUITES, Suite
from hw_tests.process.launcher import free_port
from hw_tests.process.messages import EngineOptions, Role, SideOptions
from hw_tests.process.pair import EngineProcess

LOCAL = ["--arm=sim", "--suite=pair"]


@pytest.fixture
def given_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the machine of the tests other facts."""

    def give(**other: Any) -> None:
        monkeypatch.setattr("hw_tests.cluster.facts.of_the_tests", lambda: {**facts(), **other})

    return give


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("there", ["0" * 64, None])
def test_other_sources_than_those_of_the_tests_are_refused(
    name: str, there: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though both hosts have the same; what none of them can tell is no evidence either."""
    sources = {**facts()["sources"], name: there}
    monkeypatch.setattr("hw_tests.cluster.__main__.run_pair", pytest.fail)
    connected(told_hosts({"sources": sources}, {"sources": sources}), monkeypatch)
    assert main([*LOCAL, "--out", str(tmp_path / "new")]) == 2
    document = json.loads((tmp_path / "new/report.json").read_text())
    assert document["outcome"] == "INCOMPLETE"
    assert f"hosts differ: sources {name}: " in document["verdict"]
    ours = document["tests_on"]["sources"][name]
    assert f"{ours} on the tests, {there} on kv_producer" in "".join(document["problems"])
    assert f"<td>{ours}</td>" in (tmp_path / "new/report.html").read_text()


def test_sources_that_change_during_a_run_are_no_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nobody could say which of them a test has read."""
    hosts = told_hosts({"boot": "a"}, {"boot": "b"})

    def ran(_options: Any, _hosts: Any, report: Report) -> None:
        report.tests.append(Test(BOTH, "it", "passed", 1.0, ""))
        told = hosts["kv_consumer"].facts_there
        hosts["kv_consumer"].facts_there = {**told, "sources": {**told["sources"], "hw_tests": "x"}}

    monkeypatch.setattr("hw_tests.cluster.__main__.run_pair", ran)
    connected(hosts, monkeypatch)
    options = ["--way=ssh", "--ssh=sh", "--producer=node1=10.0.0.1", "--consumer=node2=10.0.0.2"]
    assert main([*options, "--suite=pair", "--out", str(tmp_path / "new")]) == 3
    document = json.loads((tmp_path / "new/report.json").read_text())
    assert document["verdict"].startswith(
        "INCOMPLETE: changed during the run, node2: sources hw_tests: "
    )


def test_libraries_of_one_version_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a byte of what Python reads, or of what is compiled beside it."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mori" / "io").mkdir(parents=True)
    files = [tmp_path / "mori" / name for name in ("__init__.py", "io/__init__.py", "it.so")]
    for file in files:
        file.write_text("1")
    before = facts_of("sim")
    assert facts_of("sim")["libraries"] == before["libraries"]
    for file in files:
        file.write_text("2")
        now = facts_of("sim")
        assert [line.partition(":")[0] for line in differences({"a": before, "b": now})] == [
            "libraries mori"
        ]
        before = now


def test_what_can_change_the_tests_is_kept_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no secret, as who gets the report need not have it."""
    for name in ("LD_PRELOAD_NOT", "HSA_OVERRIDE_GFX_VERSION", "PYTHON_OF_TEST", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "told")
    kept = facts_of("sim")["environment"]
    assert kept["HSA_OVERRIDE_GFX_VERSION"] == kept["LD_PRELOAD_NOT"] == "told"
    assert kept["PYTHON_OF_TEST"] == "told"
    assert kept["VLLM_API_KEY"] == "set, and not told"


def test_sources_that_nobody_knows_are_refused(
    tmp_path: Path, given_here: Callable[..., None]
) -> None:
    """Though no machine has other ones."""
    sources = {**facts()["sources"], "connector": None}
    given_here(sources=sources)
    hosts = told_hosts({"boot": "a", "sources": sources}, {"boot": "b", "sources": sources})
    with pytest.raises(NotReady, match="hosts differ: sources connector: None on kv_producer"):
        examine_hosts(parse(["--out", str(tmp_path / "none")]), hosts, Report("rocm", {}))


def test_other_versions_than_those_of_the_tests_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_here: Callable[..., None]
) -> None:
    """In verdict, JSON and page; what only engines need may be missing here."""
    packages = {**facts()["packages"], "vllm": None, "torch": None, "msgspec": "9.9"}
    given_here(packages=packages)
    hosts = told_hosts({"boot": "a"}, {"boot": "b"})
    connected(hosts, monkeypatch)
    report = Report("rocm", {})
    examine_hosts(parse(["--out", str(tmp_path / "none")]), hosts, report)
    there = facts()["packages"]["msgspec"]
    assert report.caveats == [f"the machine of the tests has msgspec 9.9 and not {there}"]
    assert report.document()["tests_on"]["packages"] == packages
    given_here()
    again = Report("rocm", {})
    examine_hosts(parse(["--out", str(tmp_path / "none")]), hosts, again)
    assert again.caveats == []


def test_a_host_of_which_less_is_told_is_another(tmp_path: Path) -> None:
    """As one whose sources do not know of a fact, or of the request for facts."""
    hosts = told_hosts({"boot": "a"}, {"boot": "b"})
    del hosts["kv_consumer"].facts_there["packages"]
    with pytest.raises(
        NotReady, match=r"hosts differ: packages msgspec: .* on kv_producer, None on"
    ):
        examine_hosts(parse(["--out", str(tmp_path / "none")]), hosts, Report("rocm", {}))

    def unknown(_arm: str) -> dict[str, Any]:
        raise AssertionError("on node2: AttributeError: no facts")

    hosts["kv_consumer"].facts = unknown
    with pytest.raises(NotReady, match="no facts"):
        examine_hosts(parse(["--out", str(tmp_path / "none")]), hosts, Report("rocm", {}))


def run_file(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """The report of a run between hosts whose only tests are in a file with this text."""
    file = tmp_path / f"{tmp_path.name}.py"  # which no other test has imported
    file.write_text(text)
    monkeypatch.setitem(SUITES, "pair", Suite([], ["-p", "hw_tests.conftest", str(file)]))
    out = tmp_path / "out"
    out.mkdir()
    report = Report("sim", {})
    run_pair(parse([*LOCAL, "--out", str(tmp_path / "new")])._replace(out=out),
             told_hosts({}, {}), report)  # fmt: skip
    return report


def test_a_collection_that_fails_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest calls its end interrupted, with the exit code of a signal."""
    report = run_file("import no_such_module", tmp_path, monkeypatch)
    assert report.outcome == "FAIL"
    assert not report.is_cut_short
    assert "no_such_module" in report.tests[0].reason
    assert report.tests[0].how == "failed"


_SIDES = """
from types import SimpleNamespace
import pytest

@pytest.fixture
def engines():
    return SimpleNamespace(asked={"kv_consumer", "kv_producer"})

def test_each_is_asked(engines):
    engines.asked |= {"kv_consumer", "kv_producer"}

def test_one_is_asked(engines):
    engines.asked.add("kv_producer")

def test_nobody_is_asked(engines):
    pass

def test_it_fails(engines):
    assert not engines.asked, "what fixtures have asked is not the test's"
    raise AssertionError("as it should")

@pytest.mark.skip(reason="why not")
def test_it_does_not_run(engines):
    pass

def test_without_engines():
    pass
"""


def test_what_passes_without_a_command_to_each_side_was_not_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fixtures it has; what fails or does not run is told of where it should have."""
    report = run_file(_SIDES, tmp_path, monkeypatch)
    assert [(test.name.rpartition("test_")[2], test.how, test.where)
            for test in report.tests] == [
        ("each_is_asked", "passed", BOTH),
        ("one_is_asked", "passed", HERE),
        ("nobody_is_asked", "passed", HERE),
        ("it_fails", "failed", BOTH),
        ("it_does_not_run", "not run", BOTH),
        ("without_engines", "passed", HERE),
    ]  # fmt: skip
    assert "as it should" in report.tests[3].reason
    assert report.problems == []


def test_each_command_to_an_engine_is_known_by_its_role() -> None:
    """Which is that of the host it goes to."""
    asked: set[Role] = set()
    for role in get_args(Role):
        options = EngineOptions(SideOptions("llama", role, {}), 1, stands_in=True)
        process: Any = SimpleNamespace(call=lambda command: command)
        assert EngineProcess(process, options, 0, asked).call("snapshot") == "snapshot"
        assert role in asked
    assert asked == {*get_args(Role)}


def test_a_signal_is_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pytest makes of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may ignore it
    text = "import signal, time\ndef test_it():\n"
    text += "    signal.raise_signal(signal.SIGINT)\n    time.sleep(9)"
    try:
        with pytest.raises(KeyboardInterrupt):
            run_file(text, tmp_path, monkeypatch)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_report_of_pytest_that_is_cut_is_a_failure() -> None:
    """Also beside an exit code that says otherwise."""
    report = Report("sim", {})
    take(report, "<testsuites><testcase", "node1", 0, "")
    assert report.outcome == "FAIL"
    assert "cannot be read" in report.tests[0].reason


def test_what_serves_already_is_not_taken_for_a_server_of_the_run() -> None:
    """It would be asked until the one that was meant has found its port taken."""
    agent = Agent()
    url = f"http://127.0.0.1:{free_port()}"
    agent.serve("decode", "sleep 60", url)
    (taken,) = agent.listen(1)
    with pytest.raises(
        ChildFailed, match=r"decode: something serves at http://127.0.0.1:.* already"
    ):
        agent.serve("decode", "sleep 60", f"http://127.0.0.1:{taken}")
    agent._serving["decode"].kill()
