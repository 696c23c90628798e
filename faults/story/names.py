"""Which requests a log line names."""

from __future__ import annotations

import re
from collections.abc import Container

from sim.request_ids import logical_id

_WORD = re.compile(r"[\w.-]+")
_ADDRESSES = re.compile(r"\S*_[0-9a-f]{32}-")  # in front of a leg, where both are sent at once
_TRANSFER = re.compile(r"tx-(.+)-\d+")


def requests_named(message: str, known: Container[str]) -> list[str]:
    """Those of ``known`` that ``message`` names, by themselves, by a leg or by a transfer."""
    found: dict[str, None] = {}
    for word in _WORD.findall(_ADDRESSES.sub("", message)):
        plain = word.strip(".-")
        transfer = _TRANSFER.fullmatch(plain)
        request = transfer[1] if transfer else logical_id(plain)
        if request in known:
            found[request] = None
    return list(found)
