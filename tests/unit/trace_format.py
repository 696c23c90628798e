"""The rules of Chrome's trace event format, by which viewers import a file or warn.

Of the format's document ("Trace Event Format") the parts about complete, async, flow, instant,
counter and metadata events. Works on plain JSON, and knows nothing of how faultlab makes a trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]
_KEYS = {
    "X": {"ts", "dur", "cat"},
    "b": {"ts", "id", "cat"},
    "e": {"ts", "id", "cat"},
    "s": {"ts", "id", "cat"},
    "f": {"ts", "id", "cat", "bp"},
    "i": {"ts", "s"},
    "C": {"ts", "args"},
    "M": {"args"},
}
_METADATA = {"process_name", "thread_name"}


def complaints(document: Any) -> list[str]:
    """What a strict viewer would say of a file; the order of events in it counts."""
    events: list[Event] = document["traceEvents"]
    malformed = [words for event in events for words in _shape(event)]
    if malformed:
        return malformed
    timed = [event for event in events if event["ph"] != "M"]
    return [*_order(timed), *_names(events), *_pairs(timed), *_nesting(timed), *_flows(timed)]


def _shape(event: Event) -> Iterator[str]:
    phase = event.get("ph")
    if phase not in _KEYS:
        yield f"unknown phase {phase!r}"
        return
    if missing := (_KEYS[phase] | {"name", "pid", "tid"}) - event.keys():
        yield f"{event}: lacks {sorted(missing)}"
        return
    if not all(type(event[key]) is int for key in ("pid", "tid")):
        yield f"{event}: pid and tid are numbers"
    if not all(_is_time(event[key]) for key in ("ts", "dur") if key in event):
        yield f"{event}: times are numbers from 0"
    if phase == "C" and not (event["args"] and all(map(_is_number, event["args"].values()))):
        yield f"{event}: counters are numbers"
    if phase == "M" and not (event["name"] in _METADATA and type(event["args"]["name"]) is str):
        yield f"{event}: metadata is a name"
    if phase == "i" and event["s"] not in ("g", "p", "t"):
        yield f"{event}: scope {event['s']!r}"


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _order(timed: list[Event]) -> Iterator[str]:
    if [e["ts"] for e in timed] != sorted(e["ts"] for e in timed):
        yield "events are not in order of time"


def _names(events: list[Event]) -> Iterator[str]:
    named = [(e["name"], e["pid"], e["tid"]) for e in events if e["ph"] == "M"]
    processes = [pid for name, pid, _ in named if name == "process_name"]
    threads = [(pid, tid) for name, pid, tid in named if name == "thread_name"]
    for given in (processes, threads):
        if len(given) != len(set(given)):
            yield "a lane has two names"
    for event in events:
        lane = event["pid"], event["tid"]
        if event["ph"] != "M" and (lane[0] not in processes or lane not in threads):
            yield f"lane {lane} has no name"


def _pairs(timed: list[Event]) -> Iterator[str]:
    """Async events: what begins ends, once, on its process and under its name."""
    begun: dict[tuple[str, Any], Event] = {}
    for event in timed:
        key = event.get("cat", ""), event.get("id")
        if event["ph"] == "b":
            if key in begun:
                yield f"{key} begins twice"
            begun[key] = event
        elif event["ph"] == "e":
            begin = begun.pop(key, None)
            if begin is None:
                yield f"{key} ends and has not begun"
            elif (begin["pid"], begin["name"]) != (event["pid"], event["name"]):
                yield f"{key} ends elsewhere than it began"
    yield from (f"{key} never ends" for key in begun)


def _nesting(timed: list[Event]) -> Iterator[str]:
    """Complete events of a lane lie within one another, or apart."""
    ends: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in timed:
        if event["ph"] != "X":
            continue
        open_ends, end = ends[event["pid"], event["tid"]], round(event["ts"] + event["dur"], 6)
        while open_ends and open_ends[-1] <= event["ts"]:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            yield f"{event['name']} at {event['ts']} overlaps the slice before"
        open_ends.append(end)


def _flows(timed: list[Event]) -> Iterator[str]:
    """An arrow has one beginning, then at most one end, each within a slice of its lane."""
    slices: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in timed:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append(event)
    started: dict[Any, str] = {}
    for event in timed:
        if event["ph"] not in ("s", "f"):
            continue
        if not any(
            s["ts"] <= event["ts"] <= s["ts"] + s["dur"] for s in slices[event["pid"], event["tid"]]
        ):
            yield f"flow {event['id']} has no slice at {event['ts']}"
        if event["ph"] == "s":
            if event["id"] in started:
                yield f"flow {event['id']} starts twice"
            started[event["id"]] = event["name"]
        elif started.pop(event["id"], None) != event["name"] or event["bp"] != "e":
            yield f"flow {event['id']} ends without a beginning of its name"
