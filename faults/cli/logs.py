"""Logging to stderr through structlog, as lines for people or as JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Literal

import structlog
from structlog.typing import EventDict, WrappedLogger

LogFormat = Literal["human", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


# What they say while they start is about GPUs that are not there; what guests log while they run
# is in the event log.
_NOISY = ("vllm", "torch._library.triton")


def configure(level: LogLevel = "warning", log_format: LogFormat = "human") -> None:
    """Send every structlog logger of this process to stderr, from ``level`` up."""
    render = _render_json if log_format == "json" else _render_line
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.CRITICAL)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return json.dumps(dict(event), default=str, ensure_ascii=False)


def _render_line(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    fields = dict(event)
    line = f"faultlab: {fields.pop('level')}: {fields.pop('event')}"
    trace = fields.pop("exception", None)
    if fields:
        line += " (" + ", ".join(f"{key}={value}" for key, value in fields.items()) + ")"
    return line if trace is None else f"{line}\n{trace}"
