"""How long mori.io may wait for a peer's answer while it opens a session.

It holds the interpreter's lock then, so the loads of all other peers wait as well. Its own default
is five seconds. The library takes the limit from the environment, so it has to be there before the
library is loaded.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping

VARIABLE = "MORI_IO_CP_TIMEOUT_MS"


def limit_control_plane(environ: MutableMapping[str, str], limit_s: float) -> str | None:
    """Set the time-out unless the operator has set a shorter one.

    Args:
        environ: of this process.
        limit_s: the longest that is acceptable.

    Returns:
        What to warn of: a value that was replaced, and why.
    """
    limit_ms = max(math.floor(limit_s * 1000), 1)
    given = environ.get(VARIABLE)
    if given is not None and given.strip().isdecimal() and 0 < int(given) <= limit_ms:
        return None
    environ[VARIABLE] = str(limit_ms)
    if given is None:
        return None
    return (
        f"{VARIABLE} is {given!r}, which lets one peer that does not answer hold up the loads from "
        f"all others; using {limit_ms}, set it to a number from 1 to {limit_ms} or leave it out"
    )
