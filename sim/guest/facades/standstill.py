"""Whether a thread that sleeps once more stands where it stood, with what it had."""

from __future__ import annotations

from types import FrameType
from typing import Any

from sim.kernel import Task
from sim.kernel.frames import is_testbed

_PLAIN = (bool, int, float, str, bytes, type(None))
_KEY = "sim.guest.facades.standstill"


def stands_still(task: Task, frame: FrameType | None, duration_ns: int) -> bool:
    """Whether the stack is that of the last call: same places, same local variables.

    A loop that counts does so in a local variable, or it is not noticed.
    """
    place = (duration_ns, _code_of(frame))
    last, task.locals[_KEY] = task.locals.get(_KEY), (place, None)
    if last is None or last[0] != place:
        return False
    stack = _stack(frame)
    task.locals[_KEY] = (place, stack)
    return bool(last[1] == stack)


def _code_of(frame: FrameType | None) -> tuple[int, int]:
    return (0, 0) if frame is None else (id(frame.f_code), frame.f_lasti)


def _stack(frame: FrameType | None) -> list[Any]:
    """What must be equal, of the guest's frames."""
    stack = []
    while frame is not None:
        if not is_testbed(frame):
            values = [_identity(value) for value in frame.f_locals.values()]
            stack.append((id(frame), frame.f_lasti, values))
        frame = frame.f_back
    return stack


def _identity(value: Any) -> Any:
    return value if type(value) in _PLAIN else id(value)
