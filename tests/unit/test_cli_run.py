from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from faults.cli import dispatch, progress
from faults.cli.options import RunOptions, build_scenario
from faults.cli.outcome import ExitCode
from sim.errors import UsageError
from sim.outcome import Outcome
from sim.probes import StepTimes
from sim.router.options import Hold
from sim.scenario import GeneratedWorkload, Scenario, TraceWorkload, UniformWorkload, dumps
from sim.units import SECOND

PASSING = ["run", "--requests", "2", "--set", "length_scale=0.02"]
# Half a second after its prefill the producer frees what is fetched two seconds later.
FAILING = [
    "run",
    "--set",
    "workload={kind: uniform, requests: 8, prompt_tokens: [256, 256], output_tokens: [4, 4], "
    "interval_ms: 250}",
    "--set",
    "num_blocks=50",
    "--hold",
    "req-0=2.5",
    "--extra-config",
    '{"defer_timeout": 0.5}',
]


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def scenario_file(path: Path, scenario: Scenario) -> str:
    path.write_text(dumps(scenario))
    return str(path)


def test_a_passing_run_ends_with_0_and_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The summary says what ran, what came of it, how fast, and under which hash."""
    assert dispatch.run(PASSING) == ExitCode.OK
    captured = capsys.readouterr()
    for words in ("llama (reduced geometry)", "1P1D with moriio", "2: 2 length", "runs/s", "pass"):
        assert words in captured.out
    assert captured.err == ""
    assert list(tmp_path.iterdir()) == []


def test_json_is_the_outcome_and_what_faults_did(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script reads decodes to the same type that the library returns."""
    assert dispatch.run([*PASSING, "--seed", "5", "--json"]) == ExitCode.OK
    document = capsys.readouterr().out
    outcome = msgspec.json.decode(document, type=Outcome)
    assert outcome.passed
    assert outcome.seed == 5
    assert set(json.loads(document)) == {*Outcome.__struct_fields__, "faults", "fault_coverage"}


def test_a_passing_run_that_is_kept_warns_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """There is nothing to repeat; the artifact is where --out says."""
    assert dispatch.run([*PASSING, "--out", "kept", "--json"]) == ExitCode.OK
    assert capsys.readouterr().err == ""
    assert Path("kept/artifact.json").is_file()


def test_the_summary_says_what_was_read_and_what_a_fault_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of each request, if they are few; and how the system recovered, also if it did."""
    hybrid = ["--connector", "hybrid", "--set", "kv_load_failure_policy=recompute"]
    arguments = [*PASSING, *hybrid, "--fault", "completion-error:request=req-1"]
    assert dispatch.run(arguments) == ExitCode.OK
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r"transfers req-0: [\d.]+ kB into \d+ blocks", text)
    assert "what completion-error did" in text
    told = r"reaches req-1 \(read_posted\).*d0 logs: connections-renewed: .*"
    assert re.search(told + "req-1: d0 reports the load as complete.*req-1: ends well", text)


def test_a_failing_run_ends_with_1_and_the_line_that_replays_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The story is on the screen, and everything to repeat the run is in a directory."""
    assert dispatch.run(FAILING) == ExitCode.VIOLATION
    out = capsys.readouterr().out
    text = " ".join(out.split())
    assert "p0 lets go of the blocks of req-0-p0" in text
    assert "4 layers (model.layers.0.self_attn.attn to model.layers.3.self_attn.attn)" in text
    *_, last = out.splitlines()
    (directory,) = (tmp_path / "faultlab-runs").iterdir()
    assert last == f"faultlab replay faultlab-runs/{directory.name}"
    assert directory.name.startswith("llama-moriio-seed0-")
    files = sorted(path.name for path in directory.iterdir())
    assert files == ["artifact.json", "events.jsonl", "report.html", "scenario.yaml"]


def test_a_directory_that_cannot_be_written_does_not_cost_the_verdict(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody asked for it; a script still has to see exit code 1."""
    (tmp_path / "faultlab-runs").write_text("in the way")
    assert dispatch.run(FAILING) == ExitCode.VIOLATION
    captured = capsys.readouterr()
    assert "the artifact cannot be written" in captured.err
    assert "faultlab replay" not in captured.out


def test_out_is_written_for_any_run_but_never_over_something(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The refusal names the directory and the flag."""
    assert dispatch.run([*PASSING, "--out", "kept"]) == ExitCode.OK
    first = Path("kept/artifact.json").read_bytes()
    capsys.readouterr()
    assert dispatch.run([*PASSING, "--out", "kept", "--seed", "1"]) == ExitCode.BAD_USAGE
    error = capsys.readouterr().err
    assert "kept" in error
    assert "--force" in error
    assert Path("kept/artifact.json").read_bytes() == first
    assert dispatch.run(["run", "--trace", "gone.jsonl", "--out", "kept"]) == ExitCode.BAD_USAGE
    assert "kept" in capsys.readouterr().err, "a run was begun whose result had no place"
    assert dispatch.run([*PASSING, "--out", "kept", "--seed", "1", "--force"]) == ExitCode.OK
    assert Path("kept/artifact.json").read_bytes() != first


def test_options_win_over_the_file_and_set_over_both(tmp_path: Path) -> None:
    """What is not mentioned stays as the file has it."""
    file = scenario_file(
        tmp_path / "mine.yaml",
        Scenario(seed=1, model="llama", max_virtual_s=77.0, extra_config={"a": 1, "b": 2}),
    )
    scenario = build_scenario(
        RunOptions(
            scenario=file,
            model="deepseek-mla",
            connector="x.y:Z",
            overlay=tmp_path,
            requests=3,
            holds=("req-1=65",),
            settings=("seed=9", "tp_size=2", "executor=multi-process"),
            seed=5,
            check="full",
            perturb=True,
            extra_config='{"b": 3}',
        )
    )
    assert (scenario.seed, scenario.model, scenario.connector) == (9, "deepseek-mla", "x.y:Z")
    assert (scenario.overlay, scenario.check) == (str(tmp_path), "full")
    assert (scenario.perturb, scenario.engine.tp_size, scenario.max_virtual_s) == (True, 2, 77.0)
    assert scenario.extra_config == {"a": 1, "b": 3}
    assert scenario.workload == GeneratedWorkload(requests=3)
    assert scenario.router.holds == (Hold("req-1", 65.0),)


def test_requests_takes_the_first_of_a_trace_or_generates(tmp_path: Path) -> None:
    """A workload of another kind keeps its kind."""
    uniform = UniformWorkload(requests=9, prompt_tokens=(5, 5), output_tokens=(1, 1))
    file = scenario_file(tmp_path / "uniform.yaml", Scenario(workload=uniform))
    trace = Path("some/trace.jsonl")
    in_full = str(tmp_path / trace)
    assert build_scenario(RunOptions(requests=4)).workload == GeneratedWorkload(requests=4)
    assert build_scenario(RunOptions(trace=trace)).workload == TraceWorkload(in_full)
    assert build_scenario(RunOptions(trace=trace, requests=4)).workload == TraceWorkload(in_full, 4)
    assert build_scenario(
        RunOptions(scenario=file, requests=4)
    ).workload == msgspec.structs.replace(uniform, requests=4)


def test_a_hold_replaces_that_of_the_scenario() -> None:
    """So a shipped scenario can be run without its delay."""
    scenario = build_scenario(RunOptions(scenario="late-hand-off", holds=("late=0", "next-1=2")))
    assert scenario.router.holds == (Hold("late", 0.0), Hold("next-1", 2.0))


def test_a_file_wins_over_a_shipped_scenario_of_its_name(tmp_path: Path) -> None:
    """A name that is a path is a path."""
    scenario_file(tmp_path / "late-hand-off", Scenario(seed=123))
    assert build_scenario(RunOptions(scenario="late-hand-off")).seed == 123


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (RunOptions(scenario="nothing"), "nothing: no such file.*late-hand-off"),
        (RunOptions(scenario="no.yaml"), "^no.yaml: no such file; faultlab init writes one$"),
        (RunOptions(scenario="in/no"), "^in/no: no such file; faultlab init writes one$"),
        (RunOptions(scenario="late-hand-off.yml"), r"no such file .did you mean 'late-hand-off'"),
        (RunOptions(model="lama"), "unknown model 'lama'.*did you mean 'llama'.*use one of"),
        (RunOptions(connector="mori"), "unknown connector 'mori' .did you mean 'moriio'"),
        (RunOptions(connector="pkg.mod.Cls"), "did you mean 'pkg.mod:Cls'"),
        (RunOptions(settings=("seed",)), "--set seed: expected KEY=VALUE"),
        (RunOptions(settings=("sed=3",)), "--set sed: unknown key.*did you mean 'seed'"),
        (RunOptions(holds=("req-0",)), "--hold req-0: expected REQUEST=SECONDS"),
        (RunOptions(holds=("req-0=soon",)), "--hold req-0=soon: expected REQUEST=SECONDS"),
        (RunOptions(holds=("req-0=-1",)), "--hold req-0=-1: expected .*, with 0 seconds or more"),
        (RunOptions(holds=("req-0=nan",)), "--hold req-0=nan: expected"),
        (RunOptions(extra_config="{"), "--extra-config {: is not JSON"),
        (RunOptions(extra_config="[1]"), r"--extra-config \[1\]: expected a JSON object"),
        (RunOptions(extra_config="a=5"), r"""'{"a": 5}', or .*: --set extra_config.a=5$"""),
        (
            RunOptions(extra_config="a=b c"),
            r"""'{"a": "b c"}', or .*: --set 'extra_config.a=b c'""",
        ),
        (RunOptions(settings=("extra_config=a=5",)), "expected --set extra_config.a=5$"),
        (RunOptions(scenario="late-hand-off", requests=2), "--requests 2: .*one by one"),
    ],
)
def test_a_bad_option_is_named_with_what_is_accepted(options: RunOptions, words: str) -> None:
    """Nobody has to guess what was wrong."""
    with pytest.raises(UsageError, match=words):
        build_scenario(options)


def test_a_directory_is_no_scenario(tmp_path: Path) -> None:
    """A recorded run can be run all the same, by another command."""
    (tmp_path / "held").mkdir()
    with pytest.raises(UsageError, match=r"held: has no .*; expected a scenario file"):
        build_scenario(RunOptions(scenario="held"))
    (tmp_path / "held" / "artifact.json").touch()
    with pytest.raises(UsageError, match=r"held: is a recorded run.* faultlab replay held$"):
        build_scenario(RunOptions(scenario="held"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--trace", "gone.jsonl"],
        ["run", "--hold", "req-99=5"],
        ["run", "--set", "num_blocks=2"],
        ["run", "--overlay", "gone"],
        ["run", "--overlay", "/usr", "--requests", "1"],
        ["run", "--force"],
        ["run", "--check", "some"],
    ],
)
def test_what_only_shows_when_it_runs_is_still_bad_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """One line, no traceback, exit code 2."""
    assert dispatch.run(arguments) == ExitCode.BAD_USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("faultlab: error: ")
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (RunOptions(scenario="late-handoff"), r"'late-hand-off'\?\); they are in \S+scenarios"),
        (RunOptions(settings=("sed=3",)), r"'seed'\?\); faultlab schema has them all"),
        (RunOptions(faults=("crsh",)), r"'crash'\?\); one of .*; faultlab faults lists them"),
    ],
)
def test_a_guess_is_not_lost_before_a_long_list(options: RunOptions, end: str) -> None:
    """Where the list is, is enough then."""
    with pytest.raises(UsageError, match=f"{end}$"):
        build_scenario(options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("faults: [{kind: crsh}]", "my.yaml:1:11: faults[0].kind: there is no fault kind 'crsh'"),
        ("faults: [{kind: crash, fr_s: 1}]", "my.yaml:1:24: faults[0].fr_s: unknown key"),
        (
            "faults: [{kind: crash, node: p7}]",
            "faults[0].node: unknown key (node goes under target, as in target: {node: 'p7'}); acc",
        ),
        (
            "faults: [{kind: crash, at_s: 2}]",
            "faults[0].at_s: unknown key (at_s goes under when, as in when: {at_s: 2}); accepted: ",
        ),
        (
            "router: {holds: [{request: req-99, seconds: 1}]}",
            "my.yaml:1:19: router: no request is called 'req-99'",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(
    text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Faults and router are read later than the rest, and that is nobody's concern."""
    (tmp_path / "my.yaml").write_text(text)
    assert dispatch.run(["run", "my.yaml"]) == ExitCode.BAD_USAGE
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_request_to_hold_that_there_is_not_is_told_with_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of requests that only differ in their number none is a guess at another."""
    for hold, guess in (("req-99=5", "; there"), ("rq-1=5", " (did you mean 'req-1'?); there")):
        arguments = [*PASSING, "--hold", "req-0=1", "--hold", hold]
        assert dispatch.run(arguments) == ExitCode.BAD_USAGE
        said = f"--hold {hold}: router: no request is called {hold[:-2]!r}{guess} are 2: req-0"
        assert said in " ".join(capsys.readouterr().err.split())


def test_progress_counts_requests_and_virtual_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn only once a run takes longer than people like to wait for."""
    from sim.run import run

    screen = io.StringIO()
    scenario = build_scenario(RunOptions(requests=2, settings=("length_scale=0.02",)))

    def draw() -> str:
        console = Console(file=screen, force_terminal=True, color_system=None, width=100)
        shown = progress.RunProgress(console)
        run(scenario, prepare=shown.watch)
        shown.request_ended("epilogue", "length", [])
        shown.step_done(StepTimes("d0", 0, SECOND, model_executed=True))
        shown.close()
        return screen.getvalue()

    monkeypatch.setattr(progress, "_APPEARS_AFTER_S", 600.0)  # however busy the machine is
    assert draw() == ""
    monkeypatch.setattr(progress, "_APPEARS_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_REDRAWN_EVERY_S", 0.0)
    drawn = draw()
    counts = [int(count) for count in re.findall(r"(\d+)/2 requests", drawn)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 2), "the run's own last request does not count"
    assert "s virtual" in drawn
