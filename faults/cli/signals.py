"""SIGTERM and SIGHUP end a command as Ctrl-C does, but for the exit code."""

from __future__ import annotations

import signal
import sys
import threading
from _thread import start_new_thread  # these as they are outside a run
from signal import pthread_kill
from time import sleep
from types import FrameType

INTERRUPTED = 130
"""What commands return, whichever signal it was."""
_WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "hung up (SIGHUP)",
}
_last = signal.SIGINT
_AGAIN_AFTER_S = 0.01


def heed_signals() -> None:
    """From now on SIGTERM and SIGHUP do what Ctrl-C would do at that moment.

    One that the caller ignores, as SIGHUP under nohup, stays ignored. One that comes while a
    finalizer runs, or a callback, where Python discards exceptions, comes again a little later.
    """
    sys.unraisablehook = _discarded
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


def _discarded(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        # Not at once: raised in here, it would be discarded as well.
        start_new_thread(_send_again, ())
    else:
        sys.__unraisablehook__(unraisable)


def _send_again() -> None:
    sleep(_AGAIN_AFTER_S)
    main = threading.main_thread().ident
    assert main is not None
    pthread_kill(main, _last)  # to that thread, which may be in a system call
