"""SIGTERM and SIGHUP end a command as Ctrl-C does, but for the exit code."""

from __future__ import annotations

import signal
from types import FrameType

INTERRUPTED = 130
"""What commands return, whichever signal it was."""
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "hung up (SIGHUP)",
}
_last = signal.SIGINT


def heed_signals() -> None:
    """From now on SIGTERM and SIGHUP do what Ctrl-C would do at that moment.

    One that the caller ignores, as SIGHUP under nohup, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A job in the background of a script. What ends a run is installed only where Python's own
        # handler is, and the other signals need it; blocked, SIGINT itself stays without effect.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def ending() -> tuple[int, str]:
    """The exit code of a process that was interrupted, as shells number it, and what to say."""
    return 128 + _last, f"faultlab: {_WORDS[_last]}"


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last  # a process has one end
    _last = signal.Signals(number)
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
