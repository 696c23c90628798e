"""A session: transfers between one local and one remote memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from sim.fabric.mori.exit import exit_process
from sim.fabric.mori.plan import Items, to_column
from sim.fabric.mori.poster import Poster
from sim.fabric.mori.status import TransferStatus
from sim.fabric.mori.xgmi_poster import XgmiPoster
from sim.fabric.work import Operation
from sim.kernel.task import call_site

if TYPE_CHECKING:
    from sim.fabric.mori.engine import IOEngine


class IOEngineSession:
    """Made by ``create_session`` only. Offsets are bytes from the starts of the two memories."""

    _status: ClassVar[type[TransferStatus]]

    def __init__(self, engine: IOEngine, poster: Poster | XgmiPoster) -> None:
        self._engine = engine
        self._poster = poster
        self._kernel = engine._kernel

    def allocate_transfer_uid(self) -> int:
        """The engine's next transfer number."""
        return self._engine.allocate_transfer_uid()

    def alive(self) -> bool:
        """False after some kinds of failure only; True does not mean that transfers work."""
        self._kernel.checkpoint()
        self._require_backend()
        return self._poster.alive()

    def read(self, local_off: int, remote_off: int, size: int, uid: int, /) -> TransferStatus:
        """Fill local memory from remote memory."""
        return self._single(Operation.READ, local_off, remote_off, size, uid)

    def write(self, local_off: int, remote_off: int, size: int, uid: int, /) -> TransferStatus:
        """Fill remote memory from local memory."""
        return self._single(Operation.WRITE, local_off, remote_off, size, uid)

    def batch_read(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
        /,
    ) -> TransferStatus:
        """Many reads as one transfer with one status."""
        return self._batch(Operation.READ, local_offs, remote_offs, sizes, uid)

    def batch_write(
        self,
        local_offs: Sequence[int],
        remote_offs: Sequence[int],
        sizes: Sequence[int],
        uid: int,
        /,
    ) -> TransferStatus:
        """Many writes as one transfer with one status."""
        return self._batch(Operation.WRITE, local_offs, remote_offs, sizes, uid)

    def _single(
        self, operation: Operation, local: int, remote: int, size: int, uid: int
    ) -> TransferStatus:
        self._kernel.checkpoint()
        items = Items(to_column([local]), to_column([remote]), to_column([size]))
        return self._post(operation, items, uid, single=True)

    def _batch(
        self,
        operation: Operation,
        local: Sequence[int],
        remote: Sequence[int],
        sizes: Sequence[int],
        uid: int,
    ) -> TransferStatus:
        self._kernel.checkpoint()
        return self._post(operation, self.convert(local, remote, sizes), uid, single=False)

    def convert(self, local: Sequence[int], remote: Sequence[int], sizes: Sequence[int]) -> Items:
        """Copy the lists into native memory, which holds the GIL."""
        with self._kernel.gil_held():
            items = Items(to_column(local), to_column(remote), to_column(sizes))
            self._kernel.sleep(len(items.sizes) * self._engine._fabric.profile.item_ns)
        return items

    def _post(
        self, operation: Operation, items: Items, uid: int, *, single: bool
    ) -> TransferStatus:
        status = self._status()
        self.post(operation, items, uid, status, single=single)
        return status

    def post(
        self, operation: Operation, items: Items, uid: int, status: TransferStatus, *, single: bool
    ) -> None:
        """Post ``items``; the outcome so far is in ``status``."""
        self._require_backend()
        self._poster.post(operation, items, uid, status, single=single)

    def _require_backend(self) -> None:
        """Without it the session's pointers are of freed memory. What the library does with them
        is undefined; a process that ends is what can be told from one that goes on."""
        if not self._poster.usable:
            reason = f"a session of mori.io was used after remove_backend, at {call_site()}"
            exit_process(self._kernel, self._engine._process, reason)
