"""What guests, and vLLM around them, write to their logs becomes part of the record of a run.

Warnings and worse are kept, with memory addresses blanked: they are the one part of a log line
that differs from run to run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from vllm.logger import _print_error_once, _print_info_once, _print_warning_once

from sim.kernel import Kernel
from sim.kernel.frames import described_with_place, original_name, traceback_of
from sim.kernel.plain_text import GUEST_ROOT, plain

_MAX_LENGTH = 2_000
_TRACEBACK = "Traceback (most recent call last)"
# The engine and the guests. Other parts of vLLM speak mostly while they are imported, which
# happens once in the life of an interpreter and is no part of a run.
_RECORDED = (f"{GUEST_ROOT}.", "vllm.v1.")


def _is_of_a_connector(logger: str) -> bool:
    """Whether a logger below vLLM's has a name that no module has: out-of-tree code takes one,
    because vLLM configures no other."""
    return logger.startswith("vllm.") and logger not in sys.modules


class GuestLog(logging.Handler):
    """A logging handler that appends to the event log in the name of the running task."""

    def __init__(self, kernel: Kernel, on_exception: Callable[[BaseException], None]) -> None:
        """``on_exception`` is told what guests and connectors log as errors, with tracebacks."""
        super().__init__(logging.WARNING)
        self._kernel = kernel
        self._on_exception = on_exception

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(_RECORDED) and not _is_of_a_connector(record.name):
            return
        text = plain(record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        extra = {}
        if error is not None:
            text += f" [{described_with_place(error)}]"
            extra = {"traceback": traceback_of(error)}
        self._kernel.record(
            "log", level=record.levelname, module=original_name(record.name),
            message=text[:_MAX_LENGTH], **extra,
        )  # fmt: skip
        if _TRACEBACK in text:  # a structured logger has made text of what is being handled
            error = sys.exception()
        is_vllms = record.name.startswith("vllm.v1.")
        if error is not None and record.levelno >= logging.ERROR and not is_vllms:
            self._on_exception(error)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Receive what their loggers say, and keep it off the console."""
        # "Once" is once in the life of an interpreter; here it has to be once in a run.
        for remembered in (_print_info_once, _print_warning_once, _print_error_once):
            remembered.cache_clear()
        with ExitStack() as stack:
            for name in (GUEST_ROOT, "vllm"):
                stack.enter_context(self._attached_to(logging.getLogger(name)))
            yield

    @contextmanager
    def _attached_to(self, logger: logging.Logger) -> Iterator[None]:
        before = logger.level, logger.propagate, logger.handlers[:]
        logger.handlers[:] = [self]
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        try:
            yield
        finally:
            level, logger.propagate, logger.handlers[:] = before
            logger.setLevel(level)
