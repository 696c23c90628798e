"""``python -m hw_tests.cluster``: the hardware suite on two hosts, and a report about it.

Exit code: 0 if all that could be run passed, 1 if something failed, 3 if too little was tested,
2 if hosts are not ready or cannot be reached, or for bad usage, 130 if it was interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from hw_tests.cluster.options import BadOptions, Options, parse
from hw_tests.cluster.report import NOTES, Report, write
from hw_tests.cluster.run import (
    NotReady,
    commands,
    connect,
    examine_again,
    examine_hosts,
    run_each,
    run_pair,
)
from hw_tests.cluster.served import run_served, served_commands
from hw_tests.cluster.suites import SERVED, narrowing
from hw_tests.outcome import EXIT_CODES, narrowed_by


def main(arguments: Sequence[str]) -> int:
    try:
        options = parse(arguments)
        if not options.only_print:
            _make(options.out)
    except BadOptions as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.only_print:
        is_served = options.suite in SERVED
        print(f"# {options.arm}: {NOTES[options.arm]}")
        print("\n".join(served_commands(options) if is_served else commands(options)))
        return 0
    if options.settings.way == "hand":
        print("\n".join(commands(options)), flush=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    settings = {"command": list(arguments), "run": options.settings.run, "started": started}
    report = Report(options.arm, settings)
    if options.suite not in SERVED and (left_out := narrowing(options.narrowed)):
        report.caveats.append(narrowed_by(left_out))
    print(f"{options.arm}: {NOTES[options.arm]}", flush=True)
    code = _run(options, report)
    digest = write(report, options.out)
    more = "\n".join(report.problems).splitlines()[1:]  # than the verdict tells
    print("\n".join([report.verdict, *more, f"{options.arm}: {NOTES[options.arm]}"]))
    print(f"{options.out / 'report.html'}\n{digest}  {options.out / 'report.json'}")
    return code


def _make(folder: Path) -> None:
    """Raises BadOptions."""
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise BadOptions(f"--out {folder}: {error.strerror}; name a new folder where one can be "
                         "made") from None  # fmt: skip


def _interrupt(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _run(options: Options, report: Report) -> int:
    with ExitStack() as stack:
        try:
            hosts = connect(options, stack)
            examine_hosts(options, hosts, report)
            if options.suite in SERVED:
                run_served(options, hosts, report)
            else:
                run_each(options, hosts, report)
                run_pair(options, hosts, report)
            examine_again(hosts, report)
        except NotReady as error:
            report.cut_short(str(error))
            return 2
        except KeyboardInterrupt as error:
            report.cut_short(f"interrupted {error}".strip())
            return 130
        finally:
            _let_nothing_interrupt()  # until the hosts are closed, which takes seconds
        return EXIT_CODES[report.outcome]


def _let_nothing_interrupt() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
