"""Just enough of Triton's language to call vLLM's kernels on a CPU as the Python functions that
they are where Triton is not installed: pointers into arrays, loads and stores with masks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@dataclass(frozen=True)
class Pointer:
    """An address within an array, or several."""

    array: Any
    offset: Any = 0

    def __add__(self, steps: Any) -> Pointer:
        return Pointer(self.array, self.offset + steps)


class Language:
    """The place of ``triton.language`` while one program of a grid runs."""

    def __init__(self, *program: int) -> None:
        self._program = program

    def program_id(self, axis: int) -> int:
        return self._program[axis]

    def arange(self, start: int, end: int) -> Any:
        return np.arange(start, end)

    def load(self, pointer: Pointer, mask: Any = None, other: Any = 0) -> Any:
        if mask is None:
            return pointer.array[pointer.offset]
        safe = np.where(mask, pointer.offset, 0)
        return np.where(mask, pointer.array[safe], other)

    def store(self, pointer: Pointer, value: Any, mask: Any = None) -> None:
        if mask is None:
            pointer.array[pointer.offset] = value
            return
        pointer.array[pointer.offset[mask]] = np.broadcast_to(value, mask.shape)[mask]

    maximum = staticmethod(np.maximum)


@contextmanager
def program(module: ModuleType, *number: int) -> Iterator[None]:
    """Kernels of ``module`` run as the program with this number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "tl", Language(*number))
        yield
