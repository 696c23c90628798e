"""A text pipe between two simulated processes: a parent's end to write, a child's to read."""

from __future__ import annotations

from sim.guest.facades.waiting import WaitQueue, enter
from sim.kernel import Kernel


class Pipe:
    """What the kernel holds of a pipe: text under way and which ends are open. No size limit."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.pending = ""
        self.writable = True
        self.readable = True
        self._reading = WaitQueue(kernel)

    def send(self, text: str) -> None:
        if not self.readable:
            raise BrokenPipeError(32, "Broken pipe")
        self.pending += text
        self._reading.wake_all()

    def close_writer(self) -> None:
        self.writable = False
        self._reading.wake_all()

    def close_reader(self) -> None:
        self.readable = False

    def wait_readable(self, timeout: float | None) -> bool:
        """Whether a read would not block: there is text, or the end of it."""
        if self.pending or not self.writable:
            return True
        return self._reading.wait(timeout, lambda: "input on a pipe")


class PipeWriter:
    """The parent's buffered end."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._buffer = ""
        self.closed = False

    def write(self, text: str) -> int:
        self._pipe.kernel.checkpoint()
        self._require_open()
        self._buffer += text
        return len(text)

    def flush(self) -> None:
        self._pipe.kernel.checkpoint()
        self._require_open()
        text, self._buffer = self._buffer, ""
        if text and not self._pipe.kernel.closing:
            self._pipe.send(text)

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
        finally:
            self.closed = True
            if not self._pipe.kernel.closing:
                self._pipe.close_writer()

    def _require_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file.")


class PipeReader:
    """The child's buffered end; like a real one it reads ahead, out of ``select``'s sight."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._buffer = ""

    def readline(self) -> str:
        enter(self._pipe.kernel)
        while "\n" not in self._buffer:
            self._pipe.wait_readable(None)
            text, self._pipe.pending = self._pipe.pending, ""
            if not text:  # the end
                break
            self._buffer += text
        line, newline, self._buffer = self._buffer.partition("\n")
        return line + newline

    def wait_readable(self, timeout: float | None) -> bool:
        return self._pipe.wait_readable(timeout)
