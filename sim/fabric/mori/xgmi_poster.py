"""Posting over XGMI: the copies of a call go to one stream, and nobody waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sim.errors import UnsupportedByFacade
from sim.fabric.copy_stream import Copies, MappedMemory
from sim.fabric.mori.enums import StatusCode
from sim.fabric.mori.exit import exit_process
from sim.fabric.mori.plan import Items
from sim.fabric.mori.status import TransferStatus
from sim.fabric.verdicts import CopyPostItem, PeerPair, refuse
from sim.fabric.work import Operation
from sim.kernel import Kernel
from sim.kernel.task import call_site
from sim.verdict import Delay, Deliver, Fail

if TYPE_CHECKING:
    from sim.fabric.mori.xgmi import XgmiBackend

_NO_STREAM = "XGMI: Failed to get stream or event from pool"


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """The event behind the copies of a call."""

    kernel: Kernel
    copies: Copies

    def outcome(self) -> tuple[StatusCode, str] | None:
        """Ask whether it has happened."""
        return self._result("hipEventQuery") if self.copies.over else None

    def synchronize(self) -> tuple[StatusCode, str]:
        """Park until it has happened."""
        self.kernel.wait(self.copies.done, what="copies between GPUs")
        return self._result("hipEventSynchronize")

    def _result(self, call: str) -> tuple[StatusCode, str]:
        error = self.copies.error
        if error:
            return StatusCode.ERR_GPU_OP, f"XGMI: {call} failed: {error}"
        return StatusCode.SUCCESS, ""


class XgmiPoster:
    """Posts the calls of one session."""

    def __init__(
        self, backend: XgmiBackend, pair: PeerPair, local: MappedMemory, remote: MappedMemory
    ) -> None:
        self._backend = backend
        self._kernel = backend.fabric.kernel
        self._pair = pair
        self._local = local
        self._remote = remote

    @property
    def usable(self) -> bool:
        """Whether the backend is still there."""
        return self._backend.open

    def alive(self) -> bool:
        """True, whatever happened."""
        return True

    def post(
        self, operation: Operation, items: Items, uid: int, status: TransferStatus, *, single: bool
    ) -> None:
        """Enqueue the copies and leave the outcome so far in ``status``."""
        if items.mismatch() is not None:
            exit_process(self._kernel, self._backend.process, "assertion failed: batch size")
        if not single:
            items = items.not_empty()
        if not len(items.sizes):
            status.SetCode(StatusCode.SUCCESS)
            return
        copies = self._copies(operation, items, uid)
        error = self._refusal(copies, single=single)
        if error is not None:
            status.Update(*error)
            return
        profile = self._backend.fabric.gpus.profile
        self._kernel.sleep(profile.call_ns + copies.launches * profile.launch_ns)
        device = copies.destination.allocation.device
        self._backend.next_stream(device).enqueue(copies)
        status.begin(RecordedEvent(self._kernel, copies))

    def _copies(self, operation: Operation, items: Items, uid: int) -> Copies:
        segments = items.merged(max_segments=1)
        for memory, offsets in (
            (self._local, segments.local_offsets),
            (self._remote, segments.remote_offsets),
        ):
            if int((offsets + segments.sizes).max()) > memory.region.size:
                _past_the_end(memory)
        count, threshold = len(segments.sizes), self._backend.settings.gather_threshold
        launches = 1 if threshold is not None and count > threshold else count
        return Copies(
            self._pair,
            operation,
            segments,
            self._local,
            self._remote,
            uid,
            launches,
            self._kernel.event(),
        )

    def _refusal(self, copies: Copies, *, single: bool) -> tuple[StatusCode, str] | None:
        item = CopyPostItem(copies, self._pair)
        match self._backend.fabric.verdicts.ask(item):
            case Deliver():
                return None
            case Delay(by_ns=by_ns):
                self._kernel.sleep(by_ns)
                return None
            case Fail(code="BAD_STATE"):
                return StatusCode.ERR_BAD_STATE, _NO_STREAM
            case Fail(message=message):
                call = "hipMemcpyPeerAsync" if single else "memcpy"
                return StatusCode.ERR_GPU_OP, f"XGMI: {call} failed: {message or 'unknown error'}"
            case verdict:
                refuse(item, verdict)


def _past_the_end(memory: MappedMemory) -> NoReturn:
    raise UnsupportedByFacade(
        f"an XGMI copy reaches past the end of memory of {memory.region.owner}, "
        f"{memory.region.size} bytes from the registered address, which the library does not "
        f"notice and a GPU answers in its own way, at {call_site()}"
    )
