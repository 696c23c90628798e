"""``zlib``: the real one, whose CRC-32 takes the time of one core at 2 GB/s."""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Any

from sim.guest.facades.proxy import ModuleProxy
from sim.kernel import Kernel

NS_PER_KIB = 512


def make_zlib(kernel: Kernel) -> ModuleType:
    """The facade of ``zlib``. Other threads of the process go on meanwhile."""

    def crc32(data: Any, value: int = 0, /) -> int:
        kernel.checkpoint()
        checksum = zlib.crc32(data, value)
        if kernel.current() is not None:
            kernel.sleep(memoryview(data).nbytes * NS_PER_KIB // 1024)
        return checksum

    return ModuleProxy(zlib, {"crc32": crc32}, "zlib")
