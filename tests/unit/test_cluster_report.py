"""The command line of a run on two hosts, and the report about it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from far_hosts import ROOT, make_clients
from told_hosts import connected, facts, told_hosts

from hw_tests.cluster.__main__ import main
from hw_tests.cluster.facts import differences, missing
from hw_tests.cluster.options import BadOptions, parse
from hw_tests.cluster.reach import local_command
from hw_tests.cluster.report import NOTES, Report, Test, read_junit, write
from hw_tests.cluster.run import NotReady, examine_hosts, run_pair, take
from hw_tests.cluster.suites import SUITES, combined
from hw_tests.conformance import CASES
from hw_tests.outcome import ONE_HOST

JUNIT = """<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">
<testcase classname="hw_tests.process.test_a" name="test_x[1]" time="1.5" />
<testcase classname="hw_tests.process.test_a" name="test_y" time="0.1">
 <skipped type="pytest.skip" message="Skipped: this arm has no posts">at line 3</skipped></testcase>
<testcase classname="hw_tests.process.test_a" name="test_z" time="2.0">
 <failure message="AssertionError: 1 == 2">the &lt;traceback&gt;</failure></testcase>
<testcase classname="hw_tests.process.test_a" name="test_w" time="0.0">
 <error message="failed on setup">lost</error></testcase>
</testsuite></testsuites>"""
PASSED = Test("both", "a", "passed", 1.0, "")
FAILED = Test("both", "b", "failed", 1.0, "<b>why</b>")
NOT_RUN = Test("both", "c", "not run", 0.0, "no posts")
TWO = ["--producer", "node1=10.0.0.1", "--consumer", "node2=10.0.0.2"]
SSH = ["--way", "ssh", "--ssh", "sh", *TWO]  # a command that is on every machine


def test_what_pytest_has_told_is_read() -> None:
    """A skipped test is one that was not run, with its reason; an error is a failure."""
    tests = read_junit(JUNIT, "node1")
    assert [(test.name.rpartition("::")[2], test.how) for test in tests] == [
        ("test_x[1]", "passed"),
        ("test_y", "not run"),
        ("test_z", "failed"),
        ("test_w", "failed"),
    ]
    assert tests[1].reason == "this arm has no posts"
    assert "1 == 2" in tests[2].reason
    assert "<traceback>" in tests[2].reason
    assert read_junit("", "node1") == []


@pytest.mark.parametrize(
    ("tests", "problems", "verdict"),
    [
        ([PASSED, NOT_RUN], [], "pass: 1 passed, 0 failed, 1 not run"),
        ([PASSED, FAILED], [], "FAIL: 1 passed, 1 failed, 0 not run"),
        ([NOT_RUN], [], "INCOMPLETE: nothing was tested (0 passed, 0 failed, 1 not run)"),
        ([], [], "INCOMPLETE: nothing was tested (0 passed, 0 failed, 0 not run)"),
        ([PASSED], ["lost\nlines"], "INCOMPLETE: lost (1 passed, 0 failed, 0 not run)"),
        ([PASSED, FAILED], ["lost"], "FAIL: 1 passed, 1 failed, 0 not run; lost"),
    ],
)
def test_only_what_was_tested_passes(tests: list[Test], problems: list[str], verdict: str) -> None:
    report = Report("rocm", {}, {}, tests, problems)
    assert report.verdict == verdict
    assert report.document()["passed"] == verdict.startswith("pass")


def test_what_failed_before_a_host_was_lost_may_have_failed_by_that() -> None:
    """So the run is incomplete, and says why before all else."""
    report = Report("rocm", {}, {}, [PASSED, FAILED], ["no test ran on node1 alone"])
    report.cut_short("node2 is gone\nthe end of what it said")
    assert report.verdict == "INCOMPLETE: node2 is gone (1 passed, 1 failed, 0 not run)"


JUNIT_SKIPPED = """<testsuites><testsuite name="pytest"><testcase classname="a" name="x" time="0">
<skipped type="pytest.skip" message="Skipped: no GPU">at 3</skipped></testcase></testsuite>
</testsuites>"""

JUNIT_HERE = """<testsuites><testsuite name="pytest"><testcase classname="a" name="x" time="0" />
</testsuite></testsuites>"""
JUNIT_BETWEEN = """<testsuites><testsuite name="pytest"><testcase classname="a" name="x" time="0">
<properties><property name="both" value="engines" /></properties></testcase></testsuite>
</testsuites>"""


@pytest.mark.parametrize(
    ("junit", "code", "place"),
    [
        ("", 5, "both"),
        (JUNIT_SKIPPED, 0, "both"),
        (JUNIT_HERE, 0, "both"),
        ("", 5, "node1"),
        ("", 0, "node1"),
    ],
)
def test_a_half_that_ran_nothing_is_a_problem(junit: str, code: int, place: str) -> None:
    """However much the other half has tested: pytest collected nothing, or skipped all of it, or
    ran what has no engines."""
    report = Report("rocm", {}, tests=[PASSED])
    take(report, junit, place, code, "no tests ran")
    where = "between the two" if place == "both" else "on node1 alone"
    assert report.outcome == "INCOMPLETE"
    assert report.verdict.startswith(f"INCOMPLETE: no test ran {where} (pytest ended with exit co")


def test_a_half_that_ran_something_is_none() -> None:
    """One failure and one pass; one that ended badly without a failure is a failed test."""
    report = Report("rocm", {})
    take(report, JUNIT_BETWEEN, "both", 0, "")
    take(report, JUNIT_HERE, "node1", 0, "")
    assert [(test.where, test.how) for test in report.tests] == [
        ("both", "passed"),
        ("node1", "passed"),
    ]
    take(report, JUNIT, "both", 1, "")
    assert report.problems == []
    take(report, "", "node1", 3, "internal error")
    assert (report.problems, report.tests[-1].how) == ([], "failed")


def test_two_sides_on_one_host_are_told(tmp_path: Path) -> None:
    """By the kernel's id of its start, whatever they are called: in verdict, JSON and page."""
    options = parse([*SSH, "--out", str(tmp_path / "new")])
    for boots, caveats in ((("a", "a"), [ONE_HOST]), (("a", "b"), [])):
        report = Report("rocm", {}, tests=[PASSED])
        examine_hosts(options, told_hosts(*({"boot": boot} for boot in boots)), report)
        write(report, tmp_path)
        document = json.loads((tmp_path / "report.json").read_text())
        assert document["caveats"] == caveats
        said = f"pass, {ONE_HOST}: 1 passed" if caveats else "pass: 1 passed"
        assert document["verdict"].startswith(said)
        page = (tmp_path / "report.html").read_text()
        assert (f"Caveat: {ONE_HOST}." in page, said in page) == (bool(caveats), True)


def test_a_remedy_is_printed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each thing that a host lacks, and the verdict is one line."""
    lacks = [
        {"name": name, "ok": False, "found": "F", "needed": "N", "remedy": f"get {name}"}
        for name in ("mori", "a NIC")
    ]
    connected(told_hosts({"boot": "a", "preflight": lacks}, {"boot": "a"}), monkeypatch)
    assert main([*SSH, "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().out
    assert [said.count(f"fix: get {name}") for name in ("mori", "a NIC")] == [1, 1]
    document = json.loads((tmp_path / "new/report.json").read_text())
    assert "\n" not in document["verdict"]
    assert "get a NIC" in "".join(document["problems"])


def test_what_either_side_of_one_machine_lacks_is_told(tmp_path: Path) -> None:
    """They may have other containers, or variables, such as one that hides a GPU."""
    gpu = {"name": "GPUs", "ok": False, "found": "1", "needed": "2", "remedy": "unset it"}
    for sides in (
        ({"preflight": [gpu]}, {}),
        ({}, {"preflight": [gpu]}),
        2 * ({"preflight": [gpu]},),
    ):
        hosts = told_hosts(*({"boot": "a", **side} for side in sides))
        with pytest.raises(NotReady) as told:
            examine_hosts(parse([*SSH, "--out", str(tmp_path / "new")]), hosts, Report("rocm", {}))
        assert str(told.value).count("lacks GPUs: found 1") == 1


def test_a_run_that_tested_nothing_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a pass nor a failure."""
    connected(told_hosts({"boot": "a"}, {"boot": "b"}), monkeypatch)

    def ran(test: Test) -> Callable[..., None]:
        return lambda _options, _hosts, report: report.tests.append(test)

    for test, code in ((PASSED, 0), (FAILED, 1), (NOT_RUN, 3)):
        monkeypatch.setattr("hw_tests.cluster.__main__.run_pair", ran(test))
        out = ["--out", str(tmp_path / test.name)]
        assert main([*SSH, "--suite", "pair", *out]) == code


@pytest.mark.parametrize(
    ("after", "caveats"),
    [
        (["-k", "one or two", "-x"], ["narrowed: -k one or two"]),
        (["-qkone", "-m=soak"], ["narrowed: -k one -m soak"]),
        (["--deselect=a.py::b", "--ignore", "c"], ["narrowed: --deselect a.py::b --ignore c"]),
        (["-v", "--tb=short"], []),
    ],
)
def test_what_was_left_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: list[str], caveats: list[str]
) -> None:
    """In verdict, JSON and page; how loud a run is leaves out nothing."""
    connected(told_hosts({"boot": "a"}, {"boot": "b"}), monkeypatch)
    monkeypatch.setattr(
        "hw_tests.cluster.__main__.run_pair",
        lambda _options, _hosts, report: report.tests.append(PASSED),
    )
    assert main([*SSH, "--suite=pair", "--out", str(tmp_path / "new"), "--", *after]) == 0
    document = json.loads((tmp_path / "new/report.json").read_text())
    assert document["caveats"] == caveats
    assert document["verdict"].startswith(", ".join(["pass", *caveats]) + ": 1 passed")
    page = (tmp_path / "new/report.html").read_text()
    assert all(f"Caveat: {caveat}." in page for caveat in caveats)


def test_a_report_has_the_hash_of_everything_and_says_what_is_unverified(tmp_path: Path) -> None:
    """A file that is changed afterwards is noticed."""
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1/host.log").write_text("log")
    here = facts()
    hosts: dict[str, Any] = {"kv_producer": here, "kv_consumer": here}
    report = Report("rocm", {"command": []}, hosts, [PASSED, FAILED, NOT_RUN])
    digest = write(report, tmp_path)
    text = (tmp_path / "report.json").read_text()
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    document = json.loads(text)
    assert document["schema_version"] == 1
    assert not document["passed"]
    assert document["files"] == {"node1/host.log": hashlib.sha256(b"log").hexdigest()}
    assert document["hosts"]["kv_producer"]["packages"]["msgspec"]
    page = (tmp_path / "report.html").read_text()
    assert "unverified on hardware" in document["note"]
    for said in (NOTES["rocm"].split(":")[0], digest, "&lt;b&gt;why", "no posts", here["python"]):
        assert said in page
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=tmp_path).returncode == 0
    (tmp_path / "node1/host.log").write_text("other")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_hosts_that_differ_are_told_apart() -> None:
    """By version and source, not by name; what the preflight lacks comes with its remedy."""
    one = facts()
    assert differences({"a": one, "b": {**one, "host": "b", "boot": "other"}}) == []
    other = {**one, "packages": {**one["packages"], "torch": "9"}, "rocm": "7.1"}
    told = differences({"a": one, "b": other})
    assert told == [
        "rocm: None on a, 7.1 on b",
        f"packages torch: {one['packages']['torch']} on a, 9 on b",
    ]
    finding = {"name": "mori", "ok": False, "found": "F", "needed": "N", "remedy": "R"}
    assert missing({"preflight": [finding, {**finding, "ok": True}]}) == [
        "mori: found F; needed N; fix: R"
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--way", "local", *TWO], "--way ssh, srun or hand"),
        (["--way", "hand", *TWO], "--answer-at"),
        (["--way", "ssh", *TWO, "--env", "MORI"], "needed NAME=VALUE"),
        (["--way", "ssh", "--producer", "no.such.host.invalid"], "no.such.host.invalid=ADDRESS"),
        (["--run", ""], "leave it out"),
        (["--out", str(ROOT)], "name a new folder"),
        (["--way", "ssh", *TWO, "--ssh", "no-such-ssh -p 1"], "no command no-such-ssh here"),
        (["--inside", "no-such-docker exec -i lab"], "no command no-such-docker here"),
        (["--way", "ssh", "--producer=-oProxyCommand=x"], "needed HOST or HOST=ADDRESS"),
        (["--way", "ssh", "--producer", "=10.0.0.1"], "needed HOST or HOST=ADDRESS"),
        (["--way", "ssh", "--producer", "a=b"], "--producer a=b: needed an IPv4 address"),
        (["--silence", "4"], "--silence 4: this side gives a sign each 2 s; say more than 4"),
        (["--", "--arm=sim"], "--arm after --: a run sets that itself"),
        (["--suite=pair", "--", "-k", "x", "--junitxml", "a.xml"], "--junitxml after --"),
        (["--", "-n", "1"], "-n after --: a run sets that itself"),
        (["--", "-n1"], "-n after --"),
        (["--", "--numprocesses=2"], "--numprocesses after --"),
        (["--", "--dist=load"], "--dist after --"),
        (["--", "-d", "--tx", "popen"], "-d after --"),
        (["--", "-qn1"], "-n after --"),
        (["--", "--config-file=x"], "--config-file after --"),
        (["--", "@args.txt"], "@ after --: the verdict could not tell what it leaves out"),
        (["--suite=pair", "--", "-k", "@args.txt"], "@ after --: the verdict"),
        (["--", "-o", "python_functions=test_a*"], "-o after --: the verdict"),
        (["--", "-qvoaddopts=-kx"], "-o after --: the verdict"),
        (["--", "--override-ini=addopts=-kx"], "--override-ini after --: the verdict"),
        (["--", "-pno:junitxml"], "-p after --: the verdict"),
        (["--arm=sim", "--", "--require-hardware"], "--arm sim is no hardware"),
    ],
)
def test_a_bad_command_line_is_refused_with_a_remedy(
    given: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown(name: str) -> str:
        raise OSError(f"{name} is not known")

    monkeypatch.setattr("socket.gethostbyname", unknown)
    with pytest.raises(BadOptions, match=said):
        parse(given)
    assert main(given) == 2
    assert said in capsys.readouterr().err


def test_only_the_run_itself_gives_options_to_pytest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None come from the environment."""
    given: list[str] = []

    def run(arguments: list[str], plugins: object) -> int:
        given.extend([*arguments, os.environ.get("PYTEST_ADDOPTS", "")])
        return 5

    monkeypatch.setenv("PYTEST_ADDOPTS", "--setup-plan")
    monkeypatch.setattr("pytest.main", run)
    options = parse(["--arm=sim", "--suite=pair", "--out", str(tmp_path / "new")])
    run_pair(options, told_hosts({}, {}), Report("sim", {}))
    assert "hw_tests/process" in given
    assert "--setup-plan" not in given
    assert "no:xdist" in given, "whose workers would not know the hosts"


def test_results_are_not_lost_for_want_of_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    """Before any host is reached."""
    assert main(["--arm=sim", "--out", "/proc/x"]) == 2
    assert "--out /proc/x: No such file or directory; name a new folder" in capsys.readouterr().err


def test_a_way_whose_command_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for way in ("ssh", "srun"):
        with pytest.raises(BadOptions, match=f"--way {way}: there is no command {way} here"):
            parse(["--way", way, *TWO])
        assert parse(["--way", way, *TWO, "--print"]).only_print


def test_srun_is_used_inside_an_allocation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere it would queue a job for each host, and leave one there that never began."""
    given = ["--way=srun", *TWO, f"--out={tmp_path / 'new'}"]
    monkeypatch.setenv("PATH", f"{make_clients(tmp_path / 'bin')}:{os.environ['PATH']}")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(BadOptions, match=r"no allocation here.* salloc -N 2.* --jobid=NUMBER"):
        parse(given)
    assert parse([*given, "--srun=srun --jobid=7"]).settings.srun == ["srun", "--jobid=7"]
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert parse(given).settings.srun == ["srun"]


def test_a_step_of_slurm_gets_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its options stand before those of the launcher, which hold where both say something."""
    step = "srun --gres=gpu:8 --propagate=NONE --ntasks=9 '--container-name=fault lab'"
    assert main(["--way=srun", *TWO, f"--srun={step}", "--print", "--suite=pair"]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = shlex.split(lines[lines.index("# kv_consumer on node2") + 1])
    assert words[: len(shlex.split(step))] == shlex.split(step)
    assert words.index("--ntasks=9") < words.index("--ntasks=1") < words.index("--nodelist=node2")


def test_what_is_asked_for_narrows_the_suite() -> None:
    """Of two expressions both have to hold, so that -k of a suite is not lost."""
    suite = SUITES["first"].both
    assert combined(suite, []) == list(suite)
    assert combined(suite, ["-x", "-k", "llama or kimi"]) == [
        *("hw_tests/process", "-x", "-k", "(a_read_fills) and (llama or kimi)")
    ]
    assert combined(["a", "-m", "soak or not soak"], ["-m=soak", "-kone"]) == [
        *("a", "-k", "one", "-m", "(soak or not soak) and (soak)")
    ]


def test_each_side_gets_its_own_environment(tmp_path: Path) -> None:
    """And the words for a container stand before what runs in it."""
    env = ["--env", "MORI_RDMA_DEVICES=mlx5", "--env", "producer:HIP_VISIBLE_DEVICES=3"]
    inside = ["--inside", "docker exec -i lab", "--out", str(tmp_path / "new"), "--print"]
    options = parse(["--way", "srun", *TWO, *env, *inside, "--", "-k", "one or two"])
    assert options.targets["kv_producer"].environment == {
        "MORI_RDMA_DEVICES": "mlx5",
        "HIP_VISIBLE_DEVICES": "3",
    }
    assert options.targets["kv_consumer"].environment == {"MORI_RDMA_DEVICES": "mlx5"}
    assert options.narrowed == ["-k", "one or two"]
    command = local_command(options.settings, options.targets["kv_consumer"])
    assert command[0] == "srun"
    assert "--nodelist=node2" in command
    assert command[-6:-1] == ["exec", "-i", "lab", "sh", "-c"]
    assert "MORI_RDMA_DEVICES=mlx5" in shlex.split(command[-1])


@pytest.mark.parametrize("way", ["ssh", "srun", "hand"])
def test_the_commands_can_be_printed(way: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run, and nothing is written."""
    assert main(["--way", way, *TWO, "--print", "--suite", "first"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# rocm: unverified on hardware: ")
    for part in ("# kv_producer on node1", "# kv_consumer on node2", "-m hw_tests.cluster.agent"):
        assert part in said
    assert "hw_tests/test_conformance.py" in said
    assert "hw_tests.calibration --arm rocm" in said
    assert "--prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000" in said
    assert "hw_tests.recall --url http://127.0.0.1:8080 --control-url http://10.0.0.1:8000" in said
    assert "# the tests between the two have no command of their own" in said
    assert ("# nothing waits for those two now" in said) == (way == "hand")


def test_a_printed_command_works_from_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """In a shell that knows nothing of the source tree; one for each host."""
    assert main([*SSH, "--arm=sim", "--suite=first", "--print", "--", "-k", "wait_all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    typed = [line for line in lines if "hw_tests/test_conformance.py" in line]
    assert len(typed) == 2
    assert lines[lines.index(typed[0]) - 1] == "# on node1, without the other"
    environment = {name: it for name, it in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        ["sh", "-c", f"{typed[0]} --collect-only"],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "wait_all" in done.stdout) == (0, True), done.stdout + done.stderr


def test_nothing_beside_the_sources_says_which_tests_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither other options in a file or a variable, nor a plugin that leaves out tests."""
    (tmp_path / "hw_tests").symlink_to(ROOT / "hw_tests")
    settings = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(
        settings.replace("'not soak'", "'not soak' -k exports")
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k exports\n")
    (tmp_path / "conftest.py").write_text("def pytest_itemcollected(): raise ValueError")
    (tmp_path / "less.py").write_text("def pytest_collection_modifyitems(items): items.clear()")
    monkeypatch.setenv("PYTEST_PLUGINS", "less")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k exports")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    given = ["--arm=sim", "--suite=first", "--print", "--directory", str(tmp_path)]
    assert main([*SSH, *given]) == 0
    line = next(each for each in capsys.readouterr().out.splitlines() if "test_conformance" in each)
    done = subprocess.run(["sh", "-c", f"{line} --collect-only"], capture_output=True, text=True)
    assert f"{len(CASES)} tests collected" in done.stdout, done.stdout + done.stderr


def test_the_machine_that_starts_a_run_needs_neither_torch_nor_vllm() -> None:
    """Its tests are collected without them; engines, which need them, are elsewhere."""
    script = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'vllm', 'mori', 'numpy']));"
        "import hw_tests.cluster.__main__, pytest;"
        "sys.exit(pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "hw_tests/process"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a_read_fills_its_own_blocks" in done.stdout
