"""Completions on their way from the NIC to the completion thread, in order, a little later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sim.fabric.work import Completion, Operation

if TYPE_CHECKING:
    from sim.fabric.queue_pair import QueuePair


class Completions:
    """Those of one queue pair; a late one holds up what comes after it."""

    def __init__(self, queue_pair: QueuePair) -> None:
        self._queue_pair = queue_pair
        self._pending: deque[Completion] = deque()
        self._due_ns = 0

    def report(self, completion: Completion, extra_ns: int = 0) -> None:
        """Hand ``completion`` to the device when the NIC has written it."""
        kernel, profile = self._queue_pair.fabric.kernel, self._queue_pair.fabric.profile
        delay = (
            profile.read_completion_ns
            if completion.chain.operation is Operation.READ
            else profile.write_completion_ns
        )
        due = max(kernel.now_ns + delay + extra_ns, self._due_ns)
        self._due_ns = due
        self._pending.append(completion)
        kernel.call_later(due - kernel.now_ns, self._next)

    def clear(self) -> None:
        """The queue pair is gone, and nobody learns of these."""
        self._pending.clear()

    def _next(self) -> None:
        if not self._pending:
            return
        completion = self._pending.popleft()
        queue_pair = self._queue_pair
        if queue_pair.silent:
            queue_pair.fabric.record("completion-lost", completion.chain, queue_pair)
            return
        queue_pair.fabric.record(
            "completion", completion.chain, queue_pair, status=completion.status.name
        )
        queue_pair.fabric.ended(completion.chain, completion.status.name)
        queue_pair.device.notify(completion)
