"""The status of a transfer, and waiting for one or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simpy.events import Event

from sim.fabric.mori.enums import StatusCode
from sim.kernel import Kernel
from sim.units import MS

_FIRST_ERROR = 10


class TransferStatus:
    """Starts as INIT; bound to a run by ``_kernel`` of a subclass.

    The first error stays whatever ``Update`` is told later; ``SetCode`` overwrites anything.
    """

    _kernel: ClassVar[Kernel]

    def __init__(self) -> None:
        self._code = StatusCode.INIT
        self._message = ""
        self._changed: Event | None = None

    def Code(self) -> StatusCode:
        """Where the transfer is."""
        self._kernel.checkpoint()
        return self._code

    def Message(self) -> str:
        """Why, when it failed."""
        self._kernel.checkpoint()
        return self._message

    def Update(self, code: StatusCode, message: str) -> None:
        """Set both, unless the transfer has failed already."""
        if int(self._code) <= _FIRST_ERROR:
            self._message = message
            self.SetCode(code)

    def SetCode(self, code: StatusCode) -> None:
        """Set the code, whatever it was."""
        self._code = code
        if code != StatusCode.IN_PROGRESS and self._changed is not None:
            changed, self._changed = self._changed, None
            changed.succeed()

    def SetMessage(self, message: str) -> None:
        """Set the message, whatever it was."""
        self._message = message

    def Init(self) -> bool:
        """Whether nothing has happened yet."""
        return self.Code() == StatusCode.INIT

    def InProgress(self) -> bool:
        """Whether the transfer is under way."""
        return self.Code() == StatusCode.IN_PROGRESS

    def Succeeded(self) -> bool:
        """Whether all bytes are there."""
        return self.Code() == StatusCode.SUCCESS

    def Failed(self) -> bool:
        """Whether the transfer ended with an error; some bytes may still land."""
        return int(self.Code()) > _FIRST_ERROR

    def Wait(self) -> StatusCode:
        """Park while the transfer is under way; a status still INIT returns at once."""
        return self.WaitFor(-1)

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:
        """Like ``Wait``, at most ``timeout_ms``; 0 only looks, negative has no limit."""
        self._kernel.checkpoint()
        self.wait_until(None if timeout_ms < 0 else self._kernel.now_ns + timeout_ms * MS)
        return self._code

    def wait_until(self, deadline_ns: int | None) -> None:
        """Park until the status is not IN_PROGRESS or the deadline is reached."""
        kernel = self._kernel
        while self._code == StatusCode.IN_PROGRESS:
            timeout_ns = None if deadline_ns is None else deadline_ns - kernel.now_ns
            if timeout_ns is not None and timeout_ns <= 0:
                return
            if self._changed is None:
                self._changed = kernel.event()
            kernel.wait(self._changed, timeout_ns, what="a transfer status")


def wait_all(kernel: Kernel, statuses: Sequence[TransferStatus], timeout_ms: int) -> StatusCode:
    """Wait for every status in list order; one deadline for all.

    A failure ends nothing early. Returns the first code in list order that is not SUCCESS; with
    ``timeout_ms`` 0, which only looks, an error anywhere goes before.
    """
    deadline_ns = None if timeout_ms < 0 else kernel.now_ns + timeout_ms * MS
    codes = []
    for status in statuses:
        status.wait_until(deadline_ns)
        codes.append(status._code)
    if timeout_ms == 0:
        codes.sort(key=lambda code: int(code) <= _FIRST_ERROR)
    return next((code for code in codes if code != StatusCode.SUCCESS), StatusCode.SUCCESS)
