"""Posting: the part of a call that runs in the caller's thread, without the GIL.

All of a call is posted or refused before it returns, in the caller's thread or, slice by slice,
by posting workers. The notification goes behind the data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sim.fabric.memory import MemoryRegion
from sim.fabric.mori.chain_poster import Call, ChainPoster
from sim.fabric.mori.chunks import Chunking
from sim.fabric.mori.config import DEFAULT_SEGMENTS_PER_WORK_REQUEST
from sim.fabric.mori.endpoint import Endpoint, Transfer
from sim.fabric.mori.enums import StatusCode
from sim.fabric.mori.executor import Executor, Outcome
from sim.fabric.mori.notifications import Notifier
from sim.fabric.mori.plan import Items, too_long
from sim.fabric.mori.status import TransferStatus
from sim.fabric.work import Operation, RemoteRegion, Segments

if TYPE_CHECKING:
    from sim.fabric.mori.backend import RdmaBackend


@dataclass(frozen=True, slots=True)
class _Part:
    """What goes to some of the queue pairs: work requests, or why there are none."""

    endpoints: list[Endpoint]
    work: Segments | str
    items: int

    @property
    def credit(self) -> int:
        """What the part adds to the transfer; a refused one is never done."""
        return self.items if isinstance(self.work, str) else self.work.work_requests


class Poster:
    """Posts the calls of one session."""

    def __init__(
        self,
        backend: RdmaBackend,
        endpoints: list[Endpoint],
        local: MemoryRegion,
        remote: RemoteRegion,
        *,
        is_gpu: bool,
    ) -> None:
        self._backend = backend
        self.endpoints = endpoints
        self._local = local
        self._remote = remote
        self._is_gpu = is_gpu
        self._notifier = Notifier(backend, endpoints)

    @property
    def usable(self) -> bool:
        """Whether the backend is still there."""
        return self._backend.device.alive

    def alive(self) -> bool:
        """What the session's ``alive()`` says."""
        return self._backend.alive(self.endpoints)

    def post(
        self, operation: Operation, items: Items, uid: int, status: TransferStatus, *, single: bool
    ) -> None:
        """Post all of ``items`` and leave the outcome in ``status``."""
        reason = items.mismatch()
        if reason is not None:
            status.Update(StatusCode.ERR_INVALID_ARGS, reason)
            return
        if len(items.sizes):
            error = self._post_items(operation, items, uid, status, single=single)
        else:
            status.Update(StatusCode.SUCCESS, "")
            error = None
        if error is None and self._backend.config.enable_notification:
            refused = self._notifier.notify(uid)
            error = (StatusCode.ERR_RDMA_OP, refused) if refused is not None else None
        if error is not None:
            status.Update(*error)

    def _post_items(
        self, operation: Operation, items: Items, uid: int, status: TransferStatus, *, single: bool
    ) -> Outcome:
        executor = None if single else self._executor()
        parts = self._whole(items) if executor is None else self._slices(executor, items, uid)
        transfer = Transfer(status, sum(part.credit for part in parts))
        call = Call(operation, self._local, self._remote, uid, transfer)
        status.SetCode(StatusCode.IN_PROGRESS)
        # The pieces of a single transfer are posted one by one.
        batch = 1 if single else self._backend.config.post_batch_size
        posts: list[Callable[[], Outcome]] = [
            partial(self._post_part, call, part, batch) for part in parts
        ]
        outcomes = [post() for post in posts] if executor is None else executor.run(posts)
        return next((outcome for outcome in reversed(outcomes) if outcome is not None), None)

    def _post_part(self, call: Call, part: _Part, post_batch_size: int) -> Outcome:
        if isinstance(part.work, str):
            return StatusCode.ERR_INVALID_ARGS, part.work
        poster = ChainPoster(self._backend, part.endpoints)
        profile = self._backend.fabric.profile
        is_read = call.operation is Operation.READ
        prepare_ns = profile.read_prepare_ns if is_read else profile.write_prepare_ns
        overhead_ns = profile.call_ns + part.work.work_requests * prepare_ns
        error = poster.post(call, part.work, post_batch_size, overhead_ns)
        return (StatusCode.ERR_RDMA_OP, error) if error is not None else None

    # --------------------------------------------------- from items to work

    def _executor(self) -> Executor | None:
        """The workers, unless chunks of host memory are to be posted."""
        if self._backend.config.enable_transfer_chunking and not self._is_gpu:
            return None
        return self._backend.executor

    def _whole(self, items: Items) -> list[_Part]:
        return [_Part(self.endpoints, self._work(items, merge=True), len(items.sizes))]

    def _slices(self, executor: Executor, items: Items, uid: int) -> list[_Part]:
        """Equal slices of the lists as given, each for one queue pair."""
        width, count = len(self.endpoints), len(items.sizes)
        size = -(-count // min(width, executor.workers))
        merge = not self._backend.config.enable_transfer_chunking
        parts = []
        for number, begin in enumerate(range(0, count, size)):
            part = items.slice(begin, begin + size)
            endpoint = self.endpoints[(number + uid) % width]
            parts.append(_Part([endpoint], self._work(part, merge=merge), len(part.sizes)))
        return parts

    def _work(self, items: Items, *, merge: bool) -> Segments | str:
        reason = items.rejection(self._local.size, self._remote.size)
        if reason is not None:
            return reason
        config = self._backend.config
        max_segments = config.max_msg_sge or DEFAULT_SEGMENTS_PER_WORK_REQUEST
        segments = items.merged(max_segments) if merge else items.unmerged()
        max_message_bytes = self._backend.fabric.profile.max_message_bytes
        if config.enable_transfer_chunking:
            chunking = Chunking(
                config.chunk_bytes, config.max_chunks_per_transfer, max_message_bytes
            )
            return chunking.apply(segments)
        return too_long(segments, max_message_bytes) or segments
