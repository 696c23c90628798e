"""The status of a transfer, which a thread of the engine updates and any may wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from sim.fabric.mori.enums import StatusCode

_FIRST_ERROR = 10


class TransferStatus:
    """Starts as INIT. The first error stays, whatever ``Update`` is told later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._code = StatusCode.INIT
        self._message = ""

    def Code(self) -> StatusCode:
        """Where the transfer is."""
        return self._code

    def Message(self) -> str:
        """Why, when it failed."""
        return self._message

    def Update(self, code: StatusCode, message: str) -> None:
        """Set both, unless the transfer has failed already."""
        with self._changed:
            if int(self._code) <= _FIRST_ERROR:
                self._message = message
                self.SetCode(code)

    def SetCode(self, code: StatusCode) -> None:
        """Set the code, whatever it was."""
        with self._changed:
            self._code = code
            self._changed.notify_all()

    def SetMessage(self, message: str) -> None:
        """Set the message, whatever it was."""
        self._message = message

    def Init(self) -> bool:
        """Whether nothing has happened yet."""
        return self._code == StatusCode.INIT

    def InProgress(self) -> bool:
        """Whether the transfer is under way."""
        return self._code == StatusCode.IN_PROGRESS

    def Succeeded(self) -> bool:
        """Whether all bytes are there."""
        return self._code == StatusCode.SUCCESS

    def Failed(self) -> bool:
        """Whether the transfer ended with an error; some bytes may have landed."""
        return int(self._code) > _FIRST_ERROR

    def Wait(self) -> StatusCode:
        """Block while the transfer is under way."""
        return self.WaitFor(-1)

    def WaitFor(self, timeout_ms: int = -1) -> StatusCode:
        """Like ``Wait``, at most ``timeout_ms``; 0 only looks, negative has no limit."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self.InProgress(), None if timeout_ms < 0 else timeout_ms / 1000
            )
            return self._code


def wait_all(statuses: Sequence[TransferStatus], timeout_ms: int) -> StatusCode:
    """Wait for all in list order, with one deadline; the first code that is not SUCCESS.

    With ``timeout_ms`` 0, which only looks, an error anywhere goes before.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    codes = []
    for status in statuses:
        left_ms = max(int((deadline - time.monotonic()) * 1000), 0)
        codes.append(status.WaitFor(-1 if timeout_ms < 0 else left_ms))
    if timeout_ms == 0:
        codes.sort(key=lambda code: int(code) <= _FIRST_ERROR)
    return next((code for code in codes if code != StatusCode.SUCCESS), StatusCode.SUCCESS)
