"""Structured events, one JSON object a line, over a child of vLLM's logger.

Every event has ``schema`` (raised when a field changes its meaning) and ``event``; what it is
about is bound: ``role``, ``half``, ``rank``, ``peer``, ``request``, ``transfer``. The last events
are kept in memory, those below the logger's level included, and written out when a load fails.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import Any

import structlog

SCHEMA = 1
_KEPT = 256

_recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)


def _keep(_logger: Any, level: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Stamp an event and remember it; below the logger's level it goes no further."""
    stamped = {"schema": SCHEMA, "level": level, **event}
    _recent.append(stamped)
    if not _target.isEnabledFor(logging.getLevelName(level.upper())):
        raise structlog.DropEvent
    return stamped


_target = logging.getLogger("vllm.hybrid_read")
log: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
    _target,
    processors=[_keep, structlog.processors.JSONRenderer(sort_keys=True, default=str)],
    wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
)


def recent(**about: Any) -> list[dict[str, Any]]:
    """The remembered events that are about all of ``about``, oldest first."""
    return [
        event for event in _recent if all(event.get(key) == value for key, value in about.items())
    ]
