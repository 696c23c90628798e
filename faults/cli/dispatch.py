"""Runs one command: parses, calls, prints what it returns, and names the exit code.

Commands return an ``Outcome`` or raise; only this module writes to stdout. With ``--json``
anything that a library prints meanwhile goes to stderr, so that stdout is one document.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TextIO

import structlog
import typer
from rich.console import Console
from typer.exceptions import TyperException

from faults.cli import logs, signals
from faults.cli.commands import COMMANDS, Command
from faults.cli.outcome import SCHEMA_VERSION, CannotRunError, ExitCode, Outcome, plain_text
from faults.cli.usage import OnceOnly, explain_usage
from sim.errors import TestbedError, UsageError

_OF_THE_MACHINE = (
    errno.EACCES,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.EPERM,
    errno.EROFS,
)
"""What a file system refuses to anybody's program, in words that say it all."""


def run(arguments: Sequence[str]) -> int:
    """Run the command line ``arguments`` and return the exit code; no exception leaves."""
    logs.configure()
    stdout, as_json = sys.stdout, "--json" in arguments
    try:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            result = build(arguments)(
                list(arguments) or ["--help"], prog_name="faultlab", standalone_mode=False
            )
        if not isinstance(result, Outcome):  # --help and the like have printed already
            if result == signals.INTERRUPTED:
                print(signals.ending()[1], file=sys.stderr)
            return int(result or ExitCode.OK)
        _print_outcome(result, stdout, as_json)
        return int(result.exit_code)
    except BrokenPipeError:  # the reader (a pager, head) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())
        return ExitCode.OK
    except (Exception, TestbedError) as error:
        code, message = _explain(error)
        _print_error(error, code, message)
        if _command_in(arguments) == "replay" and not isinstance(error, TyperException):
            code = ExitCode.CANNOT_RUN  # whatever else it was: git bisect takes 2 and 3 for bad
        if as_json:
            failure = {"error": {"kind": type(error).__name__, "message": message}}
            _print_document({**failure, "exit_code": int(code)}, stdout)
        return code


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the app; only commands named in ``arguments`` are imported, the rest are titles.

    Importing a command may import vLLM, which takes seconds that ``--help`` should not cost.
    """
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_root)
    for command in COMMANDS:
        function = command.load() if command.name in arguments else _title(command)
        app.command(command.name, cls=OnceOnly, short_help=command.summary)(function)
    return app


def _command_in(arguments: Sequence[str]) -> str | None:
    names = [command.name for command in COMMANDS]
    return next((argument for argument in arguments if argument in names), None)


def _title(command: Command) -> Callable[[], None]:
    def stand_in() -> None:
        raise TestbedError(f"{command.name} was called without having been loaded")

    return stand_in


def _set_log_format(log_format: logs.LogFormat) -> logs.LogFormat:
    """Apply the form while parsing, so that a parse error already has it."""
    logs.configure(log_format=log_format)
    return log_format


def _root(
    log_level: Annotated[logs.LogLevel, typer.Option(help="Lowest level to log.")] = "warning",
    log_format: Annotated[
        logs.LogFormat, typer.Option(help="Form of the log lines.", callback=_set_log_format)
    ] = "human",
) -> None:
    """Find, replay and explain KV-transfer failures in disaggregated vLLM.

    Results go to stdout, logs to stderr. Exit codes: 0 no violation, 1 violation found, 2 bad
    usage, file or configuration, 3 the testbed itself failed, 125 (replay) cannot be run,
    130 interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP).

    \b
    To begin with:
      faultlab run late-hand-off   a defect of vLLM's connector, found in seconds
      faultlab COMMAND --help      what a command does, with examples
    """
    logs.configure(log_level, log_format)


def _explain(error: BaseException) -> tuple[ExitCode, str]:
    if isinstance(error, TyperException):
        return ExitCode.BAD_USAGE, explain_usage(error, (c.name for c in COMMANDS))
    if isinstance(error, CannotRunError):
        return ExitCode.CANNOT_RUN, str(error)
    if isinstance(error, UsageError):
        return ExitCode.BAD_USAGE, str(error)
    if isinstance(error, TestbedError):
        return ExitCode.TESTBED_FAILED, f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        return ExitCode.BAD_USAGE, f"{error.filename or 'the output'}: {error.strerror}"
    where = traceback.extract_tb(error.__traceback__)[-1]
    return ExitCode.TESTBED_FAILED, (
        f"unexpected {type(error).__name__}: {error} (raised at {where.filename}:{where.lineno}); "
        "repeat with `faultlab --log-level debug ...` for the traceback"
    )


def _print_error(error: BaseException, code: ExitCode, message: str) -> None:
    log = structlog.get_logger()
    log.error(message)
    if code is ExitCode.TESTBED_FAILED:
        log.debug("traceback", exc_info=error)


def _print_outcome(outcome: Outcome, stdout: TextIO, as_json: bool) -> None:
    if as_json:
        _print_document(outcome.document, stdout)
    elif stdout.isatty():
        outcome.render(Console(file=stdout))
    else:
        stdout.write(plain_text(outcome.render))
    stdout.flush()


def _print_document(document: Mapping[str, Any], stdout: TextIO) -> None:
    # allow_nan: Python would print NaN, which is not JSON and breaks other readers.
    text = json.dumps(
        {"schema_version": SCHEMA_VERSION, **document},
        indent=2,
        allow_nan=False,
        ensure_ascii=False,
    )
    print(text, file=stdout)
