"""Where code stands, in words that are the same on every machine: module, line, function.

A guest module goes by its own name, whichever process's copy of it runs. No file paths: they tell
where something is installed, which is no part of a run.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import CodeType, FrameType

from sim.kernel.plain_text import GUEST_ROOT, plain

_TESTBED = ("sim.", "faults.")
_IMPORT_SYSTEM = "importlib._bootstrap"
_MAX_LINES = 40


def module_of(frame: FrameType) -> str:
    """The name of the module that ``frame`` belongs to, as the interpreter has it."""
    return str(frame.f_globals.get("__name__", ""))


def is_guest(frame: FrameType) -> bool:
    """Whether ``frame`` runs a process's own copy of a module: a connector, or vLLM's hooks."""
    return module_of(frame).startswith(GUEST_ROOT + ".")


def is_testbed(frame: FrameType) -> bool:
    """Whether ``frame`` belongs to the simulator or to what disturbs it."""
    return module_of(frame).startswith(_TESTBED)


def outside_testbed(inner: FrameType) -> FrameType | None:
    """``inner``, or its innermost caller that does not belong to the testbed, if there is one."""
    frame: FrameType | None = inner
    while frame is not None and is_testbed(frame):
        frame = frame.f_back
    return frame


def original_name(module: str) -> str:
    """The name of a module without the prefix of the process's copy."""
    return module.split(".", 2)[-1] if module.startswith(GUEST_ROOT + ".") else module


def place(frame: FrameType, line: int | None = None) -> str:
    """``module:line in function``; ``line`` is where the frame is now if it is not given."""
    code: CodeType = frame.f_code
    where = frame.f_lineno if line is None else line
    return f"{original_name(module_of(frame))}:{where} in {code.co_qualname}"


def raised_at(error: BaseException) -> str | None:
    """The innermost place of guest code in the traceback of ``error``, or the innermost of any
    code under test; None when the testbed raised it by itself."""
    frames = [*_frames(error)][::-1]
    guests = [entry for entry in frames if is_guest(entry[0])]
    for frame, line in (*guests, *frames):
        return place(frame, line)
    return None


def traceback_of(error: BaseException) -> list[str]:
    """The places that ``error`` came through, innermost first, without those of the testbed; what
    it was raised from follows."""
    lines: list[str] = []
    seen: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is one for one in seen):
        if seen:
            lines.append(f"caused by {described(current)}")
        seen.append(current)
        lines += [place(frame, line) for frame, line in [*_frames(current)][::-1]]
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return lines[:_MAX_LINES]


def described(error: BaseException) -> str:
    """Type and message."""
    return plain(f"{type(error).__name__}: {error}".removesuffix(": "))


def described_with_place(error: BaseException) -> str:
    """The same, and where it was raised."""
    at = raised_at(error)
    return described(error) if at is None else f"{described(error)}, raised at {at}"


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not is_testbed(frame) and not module_of(frame).startswith(_IMPORT_SYSTEM):
            yield frame, line
