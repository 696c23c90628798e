"""As much of torch as the conformance cases use, on numpy.

The library's Python layer imports torch for annotations and asks tensors for their address. The
real torch would be a download of several hundred megabytes for another interpreter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

uint8 = np.uint8


class _Device:
    type = "cpu"
    index = None


class Tensor:
    """A view of bytes, with the methods of a tensor."""

    device = _Device()

    def __init__(self, array: Any) -> None:
        self._array = array

    def data_ptr(self) -> int:
        return int(self._array.ctypes.data)

    def is_contiguous(self) -> bool:
        return bool(self._array.flags["C_CONTIGUOUS"])

    def numel(self) -> int:
        return int(self._array.size)

    nelement = numel

    def element_size(self) -> int:
        return int(self._array.itemsize)

    def to(self, kind: Any) -> Tensor:
        return self if isinstance(kind, _Device) else Tensor(self._array.astype(kind))

    def cpu(self) -> Tensor:
        return self

    def fill_(self, value: int) -> Tensor:
        self._array.fill(value)
        return self

    def zero_(self) -> Tensor:
        return self.fill_(0)

    def copy_(self, other: Tensor) -> Tensor:
        self._array[...] = other._array.astype(self._array.dtype)
        return self

    def eq(self, value: int) -> Tensor:
        return Tensor(self._array == value)

    def all(self) -> bool:
        return bool(self._array.all())

    def any(self) -> bool:
        return bool(self._array.any())

    def count_nonzero(self) -> int:
        return int(np.count_nonzero(self._array))

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self._array[place])

    def __int__(self) -> int:
        return int(self._array)

    def __mul__(self, other: int) -> Tensor:
        return Tensor(self._array * other)

    def __mod__(self, other: int) -> Tensor:
        return Tensor(self._array % other)


class cuda:
    """Of GPUs, which are not here: their memory is the host's."""

    @staticmethod
    def synchronize(device: int) -> None:
        """Nothing is queued."""


def zeros(*shape: int, dtype: Any = np.float32, device: str = "cpu") -> Tensor:
    return Tensor(np.zeros(shape, dtype))


def zeros_like(tensor: Tensor) -> Tensor:
    return Tensor(np.zeros_like(tensor._array))


def arange(end: int) -> Tensor:
    return Tensor(np.arange(end))


def equal(one: Tensor, other: Tensor) -> bool:
    return bool(np.array_equal(one._array, other._array))
