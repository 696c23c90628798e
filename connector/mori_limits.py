"""How long mori.io may keep the thread that serves all peers waiting for one of them.

While it opens a session it holds the interpreter's lock until the peer answers, five seconds by its
own default; while a send queue is full, a read waits in the call that posts it, as long again. The
library takes both limits from the environment, so they have to be there before it is loaded.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping

CONTROL_PLANE = "MORI_IO_CP_TIMEOUT_MS"
SEND_QUEUE = "MORI_IO_SQ_BACKOFF_TIMEOUT_US"
_SEND_QUEUE_LIMIT_US = 1_000  # reads that find no room are posted again, after others


def limit_waits(environ: MutableMapping[str, str], control_timeout_s: float) -> list[str]:
    """Set both time-outs unless the operator has set shorter ones.

    Args:
        environ: of this process.
        control_timeout_s: the longest that is acceptable for an answer.

    Returns:
        What to warn of: values that were replaced, and why.
    """
    control_ms = max(math.floor(control_timeout_s * 1000), 1)
    warnings = [
        _limit(environ, CONTROL_PLANE, control_ms),
        _limit(environ, SEND_QUEUE, _SEND_QUEUE_LIMIT_US),
    ]
    return [warning for warning in warnings if warning]


def _limit(environ: MutableMapping[str, str], name: str, limit: int) -> str:
    given = environ.get(name)
    if given is not None and given.strip().isdecimal() and 0 < int(given) <= limit:
        return ""
    environ[name] = str(limit)
    if given is None:
        return ""
    return (
        f"{name} is {given!r}, which lets one peer hold up the loads from all others; "
        f"using {limit}, set it to a number from 1 to {limit} or leave it out"
    )
