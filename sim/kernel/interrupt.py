"""Ctrl-C during a run ends the run, whosever turn it is.

Python raises KeyboardInterrupt wherever it happens to be, which is mostly in code under test. There
it would end one simulated thread, or be stored in a future, and the run would go on with a failure
that nobody but the person at the keyboard has caused.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupts(
    interrupt: Callable[[], None], overdue: Callable[[], bool]
) -> Iterator[None]:
    """Within, the first SIGINT calls ``interrupt``; a second raises KeyboardInterrupt on the spot.
    The first does, too, when ``overdue()`` says that whoever runs does not come to an end.

    Leaves a handler that somebody else has installed alone, and does nothing outside the main
    thread, which gets no signals.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def on_signal(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt()
        if overdue():
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
