"""Messages between simulated processes are snapshots, as between real ones.

Guest classes exist once per process. A message is pickled under their original names and
unpickled into the receiver's copies, so that ``isinstance`` holds on the other side.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from sim.guest.process import GuestProcess
from sim.kernel.plain_text import GUEST_ROOT


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes, receiver: GuestProcess) -> None:
        super().__init__(io.BytesIO(data))
        self._receiver = receiver

    def find_class(self, module: str, name: str) -> Any:
        known, place = self._receiver.unpickled, (module, name)
        if place not in known:
            known[place] = self._find(module, name)
        return known[place]

    def _find(self, module: str, name: str) -> Any:
        if module.startswith(GUEST_ROOT + "."):
            _, _, original = module.split(".", 2)
            self._receiver.load(original)
            module = self._receiver.alias(original)
        return super().find_class(module, name)


def snapshot(message: Any) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def restore(data: bytes, receiver: GuestProcess) -> Any:
    """The message with guest classes taken from ``receiver``'s copies."""
    return _Reader(data, receiver).load()
