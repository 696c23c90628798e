"""A file system that all nodes share, in memory, and ``safetensors``, which keeps tensors in it.

It is mounted at ``/shared`` everywhere and is empty when a run begins. Real files would outlive
the run, and the next one would find them. A file is there when the call that writes it returns.
"""

from __future__ import annotations

import os
import posixpath
from types import ModuleType
from typing import Any

import safetensors
import safetensors.torch as real_safetensors

from sim.guest.facades.proxy import Facade, ModuleProxy, unsupported
from sim.kernel import Kernel
from sim.units import US

MOUNT = "/shared"
_LATENCY_NS = 200 * US
_BYTES_PER_NS = 2


class SharedFiles:
    """Directories and files below the mount point."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._directories = {MOUNT: None}
        self._files: dict[str, bytes] = {}

    def covers(self, path: Any) -> bool:
        """Whether ``path`` is here; all others are the machine's."""
        normal = _normal(path)
        return normal == MOUNT or normal.startswith(MOUNT + "/")

    def exists(self, path: Any) -> bool:
        self.kernel.checkpoint()
        if not self.covers(path):
            return os.path.exists(path)
        normal = _normal(path)
        return normal in self._directories or normal in self._files

    def makedirs(self, name: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        self.kernel.checkpoint()
        if not self.covers(name):
            os.makedirs(name, mode, exist_ok)
            return
        path = _normal(name)
        if path in self._directories and not exist_ok:
            raise FileExistsError(17, "File exists", path)
        while path not in self._directories:
            self._directories[path] = None
            path = posixpath.dirname(path)

    def write(self, path: str, data: bytes) -> None:
        """Blocks the caller for as long as it takes."""
        self._transfer(data)
        normal = _normal(path)
        if posixpath.dirname(normal) not in self._directories:
            raise FileNotFoundError(2, "No such file or directory", path)
        self._files[normal] = data

    def read(self, path: str) -> bytes:
        """Blocks the caller for as long as it takes."""
        self.kernel.checkpoint()
        data = self._files.get(_normal(path))
        if data is None:
            raise FileNotFoundError(f"No such file or directory: {path}")
        self._transfer(data)
        return data

    def _transfer(self, data: bytes) -> None:
        self.kernel.sleep(_LATENCY_NS + len(data) // _BYTES_PER_NS)


def _normal(path: Any) -> str:
    return posixpath.normpath(str(os.fspath(path)))


def make_path(files: SharedFiles) -> ModuleType:
    """The facade of ``os.path``."""
    return ModuleProxy(posixpath, {"exists": files.exists}, "posixpath")


def make_safetensors(files: SharedFiles) -> dict[str, ModuleType]:
    """Facades of ``safetensors`` and ``safetensors.torch``; the format is the real one."""

    def require_shared(path: Any) -> str:
        if not files.covers(path):
            raise unsupported(files.kernel, f"safetensors on {path!r}, which is not in {MOUNT},")
        return str(os.fspath(path))

    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        files.write(require_shared(filename), real_safetensors.save(tensors, metadata))

    def load_file(filename: Any, device: Any = "cpu") -> dict[str, Any]:
        return real_safetensors.load(files.read(require_shared(filename)))

    torch = Facade(
        files.kernel, "safetensors.torch", {"save_file": save_file, "load_file": load_file}
    )
    members = {"torch": torch, "SafetensorError": safetensors.SafetensorError}
    return {
        "safetensors": Facade(files.kernel, "safetensors", members),
        "safetensors.torch": torch,
    }
