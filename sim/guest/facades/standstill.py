"""Whether a thread that sleeps once more stands where it stood, with what it had."""

from __future__ import annotations

import dis
import weakref
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from sim.kernel import Task
from sim.kernel.frames import is_testbed
from sim.kernel.watched_clock import plain_time

_PLAIN = (bool, int, str, bytes, type(None))
_KEY = "sim.guest.facades.standstill"


def stands_still(task: Task, frame: FrameType | None, duration_ns: int) -> bool:
    """Whether the stack is that of the last call: same places, same local variables.

    A loop that counts does so in a local variable or with ``for``, or it is not noticed.
    """
    if _counts(frame):
        return False
    place = (duration_ns, _place(frame))
    last, task.locals[_KEY] = task.locals.get(_KEY), (place, None)
    if last is None or last[0] != place:
        return False
    stack = _stack(frame)
    task.locals[_KEY] = (place, stack)
    return last[1] is not None and _equal(last[1], stack)


def _place(frame: FrameType | None) -> Any:
    return None if frame is None else (frame.f_code, frame.f_lasti)


def _stack(frame: FrameType | None) -> list[Any]:
    """Places and values of the guest's frames, the innermost first."""
    stack: list[Any] = []
    while frame is not None:
        if not is_testbed(frame):
            stack += _place(frame)
            stack += [_kept(value) for value in frame.f_locals.values()]
        frame = frame.f_back
    return stack


def _kept(value: Any) -> Any:
    """``value``, so that nothing else can take its place in memory; but it may go if it can."""
    if isinstance(value, float):
        return plain_time(value)
    if type(value) in _PLAIN:
        return value
    try:
        return weakref.ref(value)
    except TypeError:
        return value


def _equal(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(map(_same, before, now))


def _same(before: Any, now: Any) -> bool:
    if type(before) in _PLAIN or type(before) is float:
        return type(now) is type(before) and bool(now == before)
    if type(before) is type(now) is weakref.ref:
        return before() is now()
    return before is now


def _counts(frame: FrameType | None) -> bool:
    """Whether the loop that sleeps is one over things, which may all be equal."""
    while frame is not None:
        loops = () if is_testbed(frame) else _loops(frame.f_code)
        around = [loop for loop in loops if loop[0] <= frame.f_lasti <= loop[1]]
        if around:
            _, _, is_for = max(around)
            return is_for
        frame = frame.f_back
    return False


@lru_cache(maxsize=4096)
def _loops(code: CodeType) -> tuple[tuple[int, int, bool], ...]:
    """Where each loop begins, where it jumps back for the last time, and whether it is a ``for``.

    Handlers of exceptions lie behind it, so what does so as well may be taken to be inside.
    """
    instructions = {each.offset: each for each in dis.get_instructions(code)}
    ends: dict[int, int] = {}
    for offset, each in instructions.items():
        if "JUMP" in each.opname and each.argval <= offset:
            ends[each.argval] = offset
    return tuple((at, end, instructions[at].opname == "FOR_ITER") for at, end in ends.items())
