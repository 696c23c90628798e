"""While vLLM is loaded, which takes seconds: a word about it, and Ctrl-C without a traceback."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from faults.cli import signals

_HINT = b"faultlab: loading vLLM ...\n"
_HINT_AFTER_S = 1.0


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """Within, Ctrl-C ends the process on the spot.

    For the time before anything has begun: libraries that are half loaded turn KeyboardInterrupt
    into errors of their own, or swallow it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def loading() -> Iterator[None]:
    """Around the import of vLLM: after a second, people at a terminal are told what they wait
    for."""
    is_main = threading.current_thread() is threading.main_thread()
    if "vllm" in sys.modules or not is_main:
        yield
        return
    before = signal.signal(signal.SIGALRM, _say_so)
    if sys.stderr.isatty():
        signal.setitimer(signal.ITIMER_REAL, _HINT_AFTER_S)
    try:
        with ending_on_interrupt():
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say_so(_number: int, _frame: FrameType | None) -> None:
    os.write(2, _HINT)


def _end(_number: int, _frame: FrameType | None) -> None:
    code, message = signals.ending()
    os.write(2, f"{message}\n".encode())
    os._exit(code)
