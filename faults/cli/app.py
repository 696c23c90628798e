"""The entry point: settle the process environment first, import everything else after it."""

from __future__ import annotations

import sys

from faults.cli import signals
from faults.cli.loading import ending_on_interrupt
from faults.cli.reexec import ReexecError, settle_process
from faults.cli.streams import open_closed_streams


def main() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        signals.heed_signals()
        with ending_on_interrupt():
            open_closed_streams()
            settle_process()
            # Late on purpose: a process that is about to be replaced should not load the
            # commands, and vLLM reads its environment when it is imported.
            from faults.cli.dispatch import run  # noqa: PLC0415

        code = run(sys.argv[1:])
        return signals.ending()[0] if code == signals.INTERRUPTED else code
    except ReexecError as error:
        print(f"faultlab: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        code, message = signals.ending()
        print(message, file=sys.stderr)
        return code
