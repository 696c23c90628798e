"""``os.environ``: what one simulated process sets, no other sees."""

from __future__ import annotations

import os as real_os
from collections.abc import Iterator, MutableMapping

from sim.kernel import Kernel

_NOT_INHERITED = "MORI_"
"""Settings of the RDMA library: of a run they are what its processes set, not the caller's."""


class ProcessEnvironment(MutableMapping[str, str]):
    """The environment of the running process: at its start the real one, less `_NOT_INHERITED`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def _own(self) -> dict[str, str]:
        task = self._kernel.current()
        if task is None:
            return _inherited()
        key = f"environ/{task.process.incarnation}"
        resources = task.process.resources
        if key not in resources:
            resources[key] = _inherited()
        own: dict[str, str] = resources[key]
        return own

    def __getitem__(self, name: str) -> str:
        return self._own()[name]

    def __setitem__(self, name: str, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError(f"str expected, not {type(value).__name__}")
        self._own()[name] = value

    def __delitem__(self, name: str) -> None:
        del self._own()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own())

    def __len__(self) -> int:
        return len(self._own())

    def copy(self) -> dict[str, str]:
        return dict(self._own())


def _inherited() -> dict[str, str]:
    return {
        name: value
        for name, value in real_os.environ.items()
        if not name.startswith(_NOT_INHERITED)
    }
