"""Structured events, one JSON object a line, over a child of vLLM's logger; the flight recorder.

Every event has ``schema``, ``event``, ``level`` and ``at_s``; what it is about is bound: ``role``,
``half``, ``rank``, ``peer``, ``request``, ``transfer``. docs/connector-log.md lists all events. The
last ones are kept in memory, those below the logger's level included, and written out when a load
fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import structlog

SCHEMA = 2
"""Raised when a field changes its meaning or goes away."""
_KEPT = 1024
_DUMPED = 64

_LEVELS = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}

_recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)
_lock = threading.Lock()  # the scheduler's thread, the loader's and the listener's all write


def _keep(_logger: Any, level: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Stamp an event and remember it; below the logger's level it goes no further."""
    stamped = {"schema": SCHEMA, "level": level, "at_s": round(time.monotonic(), 6), **event}
    if event["event"] != "flight-record":
        with _lock:
            _recent.append(stamped)
    if not _target.isEnabledFor(_LEVELS[level]):
        raise structlog.DropEvent
    return stamped


_target = logging.getLogger("vllm.hybrid_read")
Log = structlog.typing.FilteringBoundLogger
log: Log = structlog.wrap_logger(
    _target,
    processors=[
        _keep,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(sort_keys=True, default=str),
    ],
    wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
)


def dump(bound: Log, request: str, peer: str | None = None) -> None:
    """Write out what is remembered of a request, and of its peer apart from other requests.

    Whatever fails here is no reason for the caller to fail.

    Args:
        bound: a log that is bound to what the record is about.
        request: whose load failed.
        peer: that it was to be read from.
    """
    with suppress(Exception):
        with _lock:
            recent = list(_recent)
        about = [event for event in recent if _is_about(event, request, peer)]
        bound.warning("flight-record", events=about[-_DUMPED:])


def _is_about(event: Mapping[str, Any], request: str, peer: str | None) -> bool:
    if "request" in event:
        return bool(event["request"] == request)
    return peer is not None and event.get("peer") == peer
