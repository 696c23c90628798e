"""The status of a transfer, and waiting for one or many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from simpy.events import Event

from sim.fabric.mori.enums import StatusCode
from sim.kernel import Kernel
from sim.units import MS

_FIRST_ERROR = 10


class Unnoticed(Protocol):
    """Work that ends without a word: whoever asks for the status has to look."""

    def outcome(self) -> tuple[StatusCode, str] | None:
        """How it ended, or None."""

    def synchronize(self) -> tuple[StatusCode, str]:
        """Park until it has ended."""


class TransferStatus:
    """Starts as INIT; bound to a run by ``_kernel`` of a subclass.

    The first error stays whatever ``Update`` is told later; ``SetCode`` overwrites anything.
    Completion threads update the status of RDMA transfers. For ``Unnoticed`` work every question
    about the code looks once; while one thread waits for its end the others' looks wait too.
    """

    _kernel: ClassVar[Kernel]

    def __init__(self) -> None:
        self._code = StatusCode.INIT
        self._message = ""
        self._changed: Event | None = None
        self._unnoticed: Unnoticed | None = None
        self._is_synchronizing = False

    def Code(self) -> StatusCode:
        """Where the transfer is."""
        self._kernel.checkpoint(within=self._unnoticed is None)
        if self._unnoticed is not None:
            with self._kernel.gil_held():
                self._look()
        return self._code

    def Message(self) -> str:
        """Why, when it failed."""
        self._kernel.checkpoint(within=True)
        return self._message

    def Update(self, code: StatusCode, message: str, /) -> None:
        """Set both, unless the transfer has failed already."""
        if int(self._code) <= _FIRST_ERROR:
            self._message = message
            self.SetCode(code)

    def SetCode(self, code: StatusCode, /) -> None:
        """Set the code, whatever it was."""
        self._code = code
        if code != StatusCode.IN_PROGRESS and self._changed is not None:
            changed, self._changed = self._changed, None
            changed.succeed()

    def SetMessage(self, message: str, /) -> None:
        """Set the message, whatever it was."""
        self._message = message

    def begin(self, work: Unnoticed) -> None:
        """The transfer is under way as ``work``."""
        self._unnoticed = work
        self.SetCode(StatusCode.IN_PROGRESS)

    def _look(self) -> None:
        if self._code != StatusCode.IN_PROGRESS or self._unnoticed is None:
            return
        if self._is_synchronizing:  # the one who waits holds a lock until the end
            self._end(self._unnoticed.synchronize())
            return
        outcome = self._unnoticed.outcome()
        if outcome is not None:
            self._end(outcome)

    def _synchronize(self) -> None:
        assert self._unnoticed is not None
        self._is_synchronizing = True
        outcome = self._unnoticed.synchronize()
        self._is_synchronizing = False
        self._end(outcome)

    def _end(self, outcome: tuple[StatusCode, str]) -> None:
        code, message = outcome
        self._unnoticed = None
        if code == StatusCode.SUCCESS:
            self.SetCode(code)
        else:
            self.Update(code, message)

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

    def Wait(self) -> None:
        """Park while the transfer is under way; a status still INIT returns at once."""
        self.WaitFor(-1)

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:
        """Like ``Wait``, at most ``timeout_ms``; 0 only looks, negative has no limit."""
        self._kernel.checkpoint()
        self.wait_until(None if timeout_ms < 0 else self._kernel.now_ns + timeout_ms * MS)
        return self._code

    def wait_until(self, deadline_ns: int | None) -> None:
        """Park until the status is not IN_PROGRESS or the deadline is reached.

        With a deadline, the end of ``Unnoticed`` work is looked for now and at the deadline only.
        """
        kernel = self._kernel
        self._look()
        while self._code == StatusCode.IN_PROGRESS:
            if deadline_ns is None and self._unnoticed is not None:
                self._synchronize()
                return
            timeout_ns = None if deadline_ns is None else deadline_ns - kernel.now_ns
            if timeout_ns is not None and timeout_ns <= 0:
                self._look()
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
