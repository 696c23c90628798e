from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable
from types import ModuleType

import pytest
import structlog

from faults.cli import dispatch
from faults.cli.commands import COMMANDS, Command
from faults.cli.outcome import ExitCode, JsonFlag, Outcome
from sim.errors import FenceError, UsageError

Install = Callable[[Callable[[], Outcome]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make ``probe`` the only command; what it does is the function that is passed."""

    def put(body: Callable[[], Outcome]) -> None:
        def command(json: JsonFlag = False) -> Outcome:
            """Do what the test says."""
            return body()

        module = ModuleType("probe_command")
        module.command = command  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "probe_command", module)
        table = (Command("probe", "probe_command", "Do something."),)
        monkeypatch.setattr(dispatch, "COMMANDS", table)

    return put


def raising(error: BaseException) -> Callable[[], Outcome]:
    """Return a command body that raises ``error``."""

    def body() -> Outcome:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("scenario.yaml: no key sed; did you mean seed?"), 2),
        (OSError(errno.ENOSPC, "No space left on device"), 2),
        (OSError(errno.EBADF, "Bad file descriptor"), 3),
        (FenceError("guest called time.sleep"), 3),
        (ZeroDivisionError("by zero"), 3),
    ],
)
def test_an_error_has_its_exit_code_and_one_line_without_traceback(
    install: Install, capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    """2 is the caller's to mend, 3 is the testbed's."""
    install(raising(error))
    assert dispatch.run(["probe"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("faultlab: error: ")
    assert str(error).rpartition("] ")[2] in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        UsageError("kinds/mine.py:3: expected ':'"),
        ZeroDivisionError("in a kind of fault"),
        FenceError("guest called time.sleep"),
    ],
)
@pytest.mark.parametrize("while_loading", [True, False])
def test_a_replay_that_cannot_be_judged_is_for_bisect_to_skip(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    while_loading: bool,
) -> None:
    """An error in a file of this commit, whether found by loading it or by running it."""

    def load(command: Command) -> Callable[..., Outcome]:
        return raising(error)() if while_loading else raising(error)

    monkeypatch.setattr(Command, "load", load)
    assert dispatch.run(["--log-level", "warning", "replay"]) == ExitCode.CANNOT_RUN
    assert dispatch.run(["trace"]) != ExitCode.CANNOT_RUN
    assert str(error) in capsys.readouterr().err


def test_an_unknown_option_of_replay_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """It would be skipped for every commit."""
    assert dispatch.run(["replay", "run", "--overlya", "."]) == ExitCode.BAD_USAGE
    assert "--overlay" in capsys.readouterr().err


def test_a_log_option_after_the_command_is_told_where_it_belongs(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the most natural place to try."""
    install(raising(AssertionError("not called")))
    assert dispatch.run(["probe", "--log-level", "debug"]) == ExitCode.BAD_USAGE
    assert "before the command: faultlab --log-level debug run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run --seed x", "--seed x: expected a valid integer; see faultlab run --help"),
        ("run --seed -1", "--seed -1: expected a number greater than or equal to 0; see"),
        ("campaign --seeds 2 --jobs 0", "--jobs 0: expected a number greater than or equal to 1;"),
        ("campaign --seeds 2 --seed-limit x", "--seed-limit x: expected a valid number; see"),
        ("campaign --seeds 5:2", "--seeds 5:2: expected N, or A:B with A below B, such as 100 or"),
        ("--log-level foo run", "--log-level foo: expected one of debug, info, warning, error; s"),
        ("run --check ful", "--check ful: expected one of incremental, full (did you mean 'full'"),
        (
            "campaign --seeds 1 --connector moriio --connector=hybrid",
            "--connector is given 2 times; give it once; faultlab compare takes two connectors",
        ),
        ("run --requests 2 --requests 3", "--requests is given 2 times; give it once"),
        ("campaign", "Missing option '--seeds' (The first N seeds, or A up to B); see"),
        ("diff a", "Missing argument 'B' (The directory of another); see faultlab diff --help"),
        ("rum", "No such command 'rum'; did you mean 'run'?; there are: run, campaign, "),
        ("--json", "No such option: --json; options of a command come after it: faultlab run --j"),
        ("run --sed 3", "No such option: --sed (Possible options: --seed, --set); see faultlab r"),
        ("run --out", "Option '--out' requires an argument; see --help"),
    ],
)
def test_a_command_line_that_is_not_accepted_is_answered_with_the_remedy(
    capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    """The value and what was expected, whichever option it is; exit code 2."""
    assert dispatch.run(arguments.split()) == ExitCode.BAD_USAGE
    assert capsys.readouterr().err.startswith(f"faultlab: error: {words}")


def test_ctrl_c_is_neither_a_violation_nor_a_failure_of_the_testbed(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """130, as shells number it, and no document that a reader could take for a result."""
    install(raising(KeyboardInterrupt()))
    assert dispatch.run(["probe", "--json"]) == 130
    assert capsys.readouterr().out == ""


def test_the_traceback_of_a_testbed_failure_is_there_for_the_asking(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--log-level debug`` shows where it came from."""
    install(raising(ZeroDivisionError("by zero")))
    dispatch.run(["--log-level", "debug", "probe"])
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["probe", "--nope"], ["nonsense"]])
def test_bad_usage_under_json_is_a_document_too(
    install: Install, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """A script that parses stdout never meets half a document or none."""
    install(raising(AssertionError("not called")))
    assert dispatch.run([*arguments, "--json"]) == ExitCode.BAD_USAGE
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == 2
    assert document["error"]["message"]


def test_json_output_stays_one_document_when_something_else_prints(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """What libraries print while a command runs goes to stderr."""

    def body() -> Outcome:
        print("chatter")
        return Outcome({"answer": 42}, lambda console: None, ExitCode.VIOLATION)

    install(body)
    assert dispatch.run(["probe", "--json"]) == ExitCode.VIOLATION
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"schema_version": 1, "answer": 42}
    assert "chatter" in captured.err


def test_a_document_that_is_not_json_is_a_testbed_failure(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python would write NaN, which other readers reject."""
    install(lambda: Outcome({"rate": float("nan")}, lambda console: None))
    assert dispatch.run(["probe", "--json"]) == ExitCode.TESTBED_FAILED
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "ValueError"


def test_logs_are_json_lines_on_stderr_when_asked_for(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object a line, and the result alone on stdout."""

    def body() -> Outcome:
        structlog.get_logger().info("run started", seed=7)
        return Outcome({}, lambda console: console.print("done"))

    install(body)
    dispatch.run(["--log-format", "json", "--log-level", "info", "probe"])
    captured = capsys.readouterr()
    assert json.loads(captured.err) == {"event": "run started", "seed": 7, "level": "info"}
    assert captured.out == "done\n"


def test_even_a_usage_error_is_a_json_line_when_logs_are_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The form of the log is known before the command is looked up."""
    assert dispatch.run(["--log-format", "json", "nonsense"]) == ExitCode.BAD_USAGE
    assert json.loads(capsys.readouterr().err)["level"] == "error"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_every_command_without_importing_any(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """Importing a command may take seconds; an overview must not."""
    monkeypatch.delitem(sys.modules, "faults.cli.doctor", raising=False)
    assert dispatch.run(arguments) == ExitCode.OK
    out = capsys.readouterr().out
    assert all(f"\n  {command.name}" in out for command in COMMANDS)
    assert "faults.cli.doctor" not in sys.modules


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help_with_examples_and_offers_json(
    capsys: pytest.CaptureFixture[str], command: Command
) -> None:
    """The table points at modules that exist and keep the common form."""
    assert dispatch.run([command.name, "--help"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "--json" in out
    assert f"Examples:\n    faultlab {command.name}" in out
