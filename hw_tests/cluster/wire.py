"""What the two ends of a connection to a host write: one pickled object a line.

A login shell may write lines of its own; they have not the mark and are no message. Either end runs
what the other sends, as ssh does, so a connection is only made to hosts of the same user.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any

_MARK = b"faultlab:"


def pack(message: Any) -> bytes:
    """One line."""
    return _MARK + base64.b64encode(pickle.dumps(message)) + b"\n"


def unpack(line: bytes) -> Any:
    """The message.

    Raises:
        ValueError: the line is none.
    """
    if not line.startswith(_MARK):
        raise ValueError("no message")
    return pickle.loads(base64.b64decode(line[len(_MARK) :]))
