"""What guests write to their logs becomes part of the record of a run.

Warnings and worse are kept, with memory addresses blanked: they are the one part of a log line
that differs from run to run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from vllm.logger import _print_error_once, _print_info_once, _print_warning_once

from sim.guest.imports import GUEST_ROOT
from sim.kernel import Kernel

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
_MAX_LENGTH = 2_000


class GuestLog(logging.Handler):
    """A logging handler that appends to the event log in the name of the running task."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(logging.WARNING)
        self._kernel = kernel

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text += f" [{type(error).__name__}: {error}]"
        module = record.name.split(".", 2)[-1]
        self._kernel.record(
            "log", level=record.levelname, module=module,
            message=_ADDRESS.sub("0x…", text)[:_MAX_LENGTH],
        )  # fmt: skip

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Receive what loggers of guest modules say, and keep it off the console."""
        # "Once" is once in the life of an interpreter; here it has to be once in a run.
        for remembered in (_print_info_once, _print_warning_once, _print_error_once):
            remembered.cache_clear()
        logger = logging.getLogger(GUEST_ROOT)
        logger.addHandler(self)
        logger.setLevel(logging.WARNING)
        logger.propagate, before = False, logger.propagate
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.propagate = before
