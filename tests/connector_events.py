"""What the connector logs, as the events that they are."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Events = list[dict[str, Any]]


@contextmanager
def logged(level: int = logging.DEBUG) -> Iterator[Events]:
    """The events from ``level`` on, in the order in which they are logged."""
    heard: Events = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(json.loads(record.getMessage()))  # type: ignore[method-assign]
    logger = logging.getLogger("vllm.hybrid_read")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield heard
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
