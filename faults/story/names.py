"""What a log line says, which requests it names, and other words that several chapters use."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

import msgspec

from faults.plural import counted
from faults.wording import folded
from sim.request_ids import logical_id

ERRORS = ("ERROR", "CRITICAL")
"""Levels of log lines."""
_WORD = re.compile(r"[\w.-]+")
_ADDRESSES = re.compile(r"\S*_[0-9a-f]{32}-")  # in front of a leg, where both are sent at once
_FLIGHT_RECORD = "flight-record"  # an appendix to what was logged before
_TRANSFER = re.compile(r"tx-(.+)-\d+")
_SHOWN = 3
_LONGEST = 1_000  # characters; vLLM logs whole scheduler outputs when an engine dies


def requests_named(message: str, known: Container[str]) -> list[str]:
    """Those of ``known`` that ``message`` names, by themselves, by a leg or by a transfer."""
    found: dict[str, None] = {}
    for word in _WORD.findall(without_addresses(message)):
        plain = word.strip(".-")
        transfer = _TRANSFER.fullmatch(plain)
        request = transfer[1] if transfer else logical_id(plain)
        if request in known:
            found[request] = None
    return list(found)


def without_requests(message: str, known: Container[str]) -> str:
    """``message`` without the words that name one of ``known``."""
    return _WORD.sub(lambda word: "" if requests_named(word[0], known) else word[0], message)


def without_addresses(message: str) -> str:
    """``message`` with the legs that it names as people know them."""
    return _ADDRESSES.sub("", message)


def said(message: str) -> str | None:
    """A log line as it is, or what a structured one says; None for mere appendices."""
    try:
        event = msgspec.json.decode(message)
    except msgspec.DecodeError:
        return message
    if not isinstance(event, dict) or "event" not in event:
        return message
    if event["event"] == _FLIGHT_RECORD:
        return None
    return f"{event['event']}: {event['reason']}" if event.get("reason") else str(event["event"])


def whole(message: str) -> str:
    """``message`` in one line, to be wrapped by whoever shows it, without addresses; what it says
    several times over is counted, and of a dump there is the beginning, with a word on what is left
    out."""
    line = folded(" ".join(without_addresses(message).split()))
    if len(line) <= _LONGEST:
        return line
    return f"{line[:_LONGEST]}... ({counted(len(line) - _LONGEST, 'character')} more)"


def pass_in_words(start: int, end: int) -> str:
    """What a forward pass that computes the tokens from ``start`` to before ``end`` does with the
    cache."""
    reads = f"reads {_tokens(0, start)} and " if start else ""
    return f"{reads}writes {_tokens(start, end)}"


def _tokens(start: int, end: int) -> str:
    return f"tokens {start}-{end - 1}" if end - start > 1 else f"token {start}"


def some_of(names: Sequence[str]) -> str:
    """The first of ``names``, and how many more there are."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
