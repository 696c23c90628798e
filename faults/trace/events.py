"""The events of Chrome's trace format that are used here, each with the fields that it must have.

Times and durations are microseconds. ``ph`` tells kinds apart: it is the tag of these types.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="ph"):
    """``pid`` and ``tid`` name a lane."""

    name: str
    pid: int
    tid: int = 0


class Named(Event, frozen=True, kw_only=True, tag="M"):
    """Gives a process or a thread its name."""

    name: Literal["process_name", "thread_name"]
    args: dict[str, str]


class Timed(Event, frozen=True, kw_only=True):
    """Anything at a time."""

    ts: float
    cat: str
    args: dict[str, Any] = {}


class Slice(Timed, frozen=True, kw_only=True, tag="X"):
    """Something with a beginning and an end, alone on its lane."""

    dur: float


class Instant(Timed, frozen=True, kw_only=True, tag="i"):
    """Something without duration, on its lane (``s`` is its scope)."""

    s: Literal["t"] = "t"


class Begin(Timed, frozen=True, kw_only=True, tag="b"):
    """Something that may overlap others begins; ``id`` pairs it with its end."""

    id: str


class End(Timed, frozen=True, kw_only=True, tag="e"):
    """It ends."""

    id: str


class FlowStart(Timed, frozen=True, kw_only=True, tag="s"):
    """An arrow leaves the slice that is there at this time."""

    id: int


class FlowEnd(Timed, frozen=True, kw_only=True, tag="f"):
    """It arrives; ``bp`` binds it to the slice that is there."""

    id: int
    bp: Literal["e"] = "e"


class Counter(Timed, frozen=True, kw_only=True, tag="C"):
    """Numbers that hold from this time on, in ``args``."""

    args: dict[str, int]


AnyEvent = Named | Slice | Instant | Begin | End | FlowStart | FlowEnd | Counter


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    traceEvents: list[AnyEvent]  # as the format has it
    displayTimeUnit: Literal["ms", "ns"] = "ms"
    otherData: dict[str, str] = {}
