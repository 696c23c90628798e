"""A stream of a program's own beside the rank's: what is copied on it waits for no other stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sim.device.stream import Stream, T
from sim.kernel import Kernel
from sim.units import SECOND

BYTES_PER_S = 25_000_000_000
"""Between a device and pinned host memory over PCIe, in one direction."""
_CHOSEN = "the stream of torch.cuda.stream"


class SideStream(Stream):
    """Copies take their time on it, and whoever copies waits for them."""

    def copied(self, copy: Callable[[], T], num_bytes: int) -> T:
        copies: list[T] = []
        duration_ns = num_bytes * SECOND // BYTES_PER_S
        self.enqueue("copy", duration_ns, at_start=lambda: copies.append(copy()))
        self.synchronize()
        return copies[0]


@contextmanager
def chosen(kernel: Kernel, stream: Stream) -> Iterator[None]:
    """Inside, the running task's work goes to ``stream``."""
    values = kernel.require_task("torch.cuda.stream").locals
    before = values.get(_CHOSEN)
    values[_CHOSEN] = stream
    try:
        yield
    finally:
        values[_CHOSEN] = before


def chosen_stream(default: Stream) -> Stream:
    """The stream that the running task has chosen, or ``default``."""
    task = default.kernel.current()
    stream: Stream | None = None if task is None else task.locals.get(_CHOSEN)
    return default if stream is None else stream
