"""A reliable connected queue pair: executes posted chains in order, or flushes them.

A chain goes through three places: ``_waiting`` behind others, ``_sending`` on the wire, and
``_landing`` on its way through the network. It lands by one event, whole: its bytes are read and
written at that instant. Only when the wire is interrupted, a part of it lands. Everything here
runs on the hub or in the posting task and never blocks.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING

from sim.fabric.landing import execute, land_prefix, landing_delay_ns
from sim.fabric.link import Flow
from sim.fabric.send_queue import SendQueue
from sim.fabric.verdicts import CompletionItem, PeerPair, completion_status, refuse
from sim.fabric.work import Completion, CompletionStatus, Operation, WorkRequestChain
from sim.verdict import Delay, Deliver, Drop, Fail

if TYPE_CHECKING:
    from sim.fabric.device import Device
    from sim.fabric.fabric import Fabric


class QueuePairState(enum.Enum):
    """States of the verbs interface that occur here."""

    RESET = "reset"
    INIT = "init"
    READY_TO_RECEIVE = "rtr"
    READY_TO_SEND = "rts"
    ERROR = "err"


class QueuePair:
    """One end of a connection; ``peer`` is the other end."""

    def __init__(self, fabric: Fabric, device: Device, number: int, depth: int) -> None:
        self.fabric = fabric
        self.device = device
        self.number = number
        self.state = QueuePairState.RESET
        self.send_queue = SendQueue(fabric.kernel, depth)
        self.peer: QueuePair | None = None
        self._waiting: deque[WorkRequestChain] = deque()
        self._sending: WorkRequestChain | None = None
        self._flow: Flow | None = None
        self._landing: deque[tuple[int, WorkRequestChain]] = deque()  # with the time it is due
        self._completing: deque[Completion] = deque()
        self._landing_due_ns = 0
        self._completing_due_ns = 0
        self._stall = 0
        self._stalled_since_ns: int | None = None

    # ------------------------------------------------------------ connection

    def connect(self, peer: QueuePair) -> None:
        """Walk through the states up to ready-to-send, against ``peer``."""
        self.state = QueuePairState.INIT
        self.peer = peer
        self.state = QueuePairState.READY_TO_RECEIVE
        self.state = QueuePairState.READY_TO_SEND
        peer.path_restored()  # it may have sent before this end was ready

    @property
    def pair(self) -> PeerPair:
        """Who is connected, seen from here."""
        assert self.peer is not None
        here, there = self.device, self.peer.device
        return PeerPair(here.key, here.process.node.name, there.key, there.process.node.name)

    @property
    def reachable(self) -> bool:
        """Whether the other end would acknowledge what is sent now."""
        peer = self.peer
        return (
            peer is not None
            and peer.device.alive
            and peer.state is QueuePairState.READY_TO_SEND
            and self.fabric.path_up(self.device.nic, peer.device.nic)
        )

    # --------------------------------------------------------------- sending

    def post(self, chain: WorkRequestChain) -> None:
        """Queue ``chain``; its room in the send queue has been reserved."""
        chain.posted_ns = self.fabric.kernel.now_ns
        if self.state is QueuePairState.ERROR:
            self._flush(chain)
            return
        self._waiting.append(chain)
        if self._sending is None and self._stalled_since_ns is None:
            self._send_next()

    def _send_next(self) -> None:
        if not self._waiting:
            return
        if not self.reachable:
            self._begin_stall()
            return
        chain = self._sending = self._waiting.popleft()
        self._flow = self._flow_of(chain)
        self.fabric.links.start(self._flow)

    def _flow_of(self, chain: WorkRequestChain) -> Flow:
        assert self.peer is not None
        profile = self.fabric.profile
        size: float = chain.segments.total_bytes
        source, destination = self.device.nic, self.peer.device.nic
        if chain.operation is Operation.READ:
            size *= profile.read_wire_bytes_per_byte
            source, destination = destination, source
        least = chain.count * profile.nic_work_request_ns * profile.nic_bytes_per_ns
        return Flow(
            max(size, least),
            (source.egress, destination.ingress),
            profile.queue_pair_bytes_per_ns,
            self._sent,
        )

    def _sent(self) -> None:
        chain, self._sending, self._flow = self._sending, None, None
        assert chain is not None
        kernel = self.fabric.kernel
        due = max(kernel.now_ns + landing_delay_ns(self, chain), self._landing_due_ns)
        self._landing_due_ns = due
        self._landing.append((due, chain))
        kernel.call_later(due - kernel.now_ns, self._land_next)
        self._send_next()

    def _land_next(self) -> None:
        if not self._landing or self._landing[0][0] > self.fabric.kernel.now_ns:
            return  # the event belonged to a chain that had to be sent again
        if self.reachable:
            execute(self, self._landing.popleft()[1])
        else:
            self._begin_stall()

    # ------------------------------------------- no answer from the other end

    def interrupt(self) -> None:
        """The path may have gone: what was on the wire will have to be sent again."""
        if self._sending is not None and not self.reachable:
            self._begin_stall()

    def _begin_stall(self) -> None:
        self._rewind()
        self._stall += 1
        self._stalled_since_ns = self.fabric.kernel.now_ns
        self.fabric.kernel.call_later(
            self.fabric.profile.retry_budget_ns, self._give_up, self._stall
        )

    def _rewind(self) -> None:
        """Take everything off the wire; the work requests that were through by then land."""
        if self._flow is not None and self._sending is not None:
            self.fabric.links.stop(self._flow)
            land_prefix(self, self._sending, self._flow.progress)
            self._waiting.appendleft(self._sending)
            self._sending = self._flow = None
        self._waiting.extendleft(chain for _due, chain in reversed(self._landing))
        self._landing.clear()
        self._landing_due_ns = 0

    def path_restored(self) -> None:
        """The next repetition, one acknowledgement time-out after another, gets through."""
        if self._stalled_since_ns is None or not self.reachable:
            return
        kernel = self.fabric.kernel
        stalled_for = kernel.now_ns - self._stalled_since_ns
        kernel.call_later(
            -stalled_for % self.fabric.profile.ack_timeout_ns, self._resume, self._stall
        )

    def _resume(self, stall: int) -> None:
        if stall == self._stall and self._stalled_since_ns is not None and self.reachable:
            self._stalled_since_ns = None
            self._send_next()

    def _give_up(self, stall: int) -> None:
        if stall == self._stall and self._stalled_since_ns is not None:
            self.fail_chain(self._waiting.popleft(), 0, CompletionStatus.RETRY_EXC)

    # ------------------------------------------------------------ completing

    def complete(self, chain: WorkRequestChain) -> None:
        """All of ``chain`` was executed; report it if it is signaled."""
        if not chain.signaled:
            return
        item = CompletionItem(chain, self.pair, self.number, CompletionStatus.SUCCESS)
        verdict = self.fabric.verdicts.ask(item)
        match verdict:
            case Deliver():
                self._report(Completion(chain, CompletionStatus.SUCCESS, self.number))
            case Delay(by_ns=by_ns):
                self._report(Completion(chain, CompletionStatus.SUCCESS, self.number), by_ns)
            case Drop():
                self.fabric.record("completion-lost", chain, self)
            case Fail(code=code, message=message):
                last = chain.count - 1
                self.fail_chain(chain, last, completion_status(code), message)
            case _:
                refuse(item, verdict)

    def fail_chain(
        self,
        chain: WorkRequestChain,
        work_request: int,
        status: CompletionStatus,
        message: str = "",
    ) -> None:
        """Work request number ``work_request`` of ``chain`` failed: nothing runs here any more."""
        is_last = work_request >= chain.count - 1
        self._report(Completion(chain, status, self.number, is_last and chain.signaled, message))
        if not is_last:
            self._flush(chain)
        self.enter_error()

    def enter_error(self) -> None:
        """Go to state ERROR and flush everything outstanding, in order."""
        if self.state is QueuePairState.ERROR:
            return
        self.state = QueuePairState.ERROR
        self._stalled_since_ns = None
        self._rewind()
        self.fabric.kernel.record(
            "queue-pair-error", queue_pair=self.number, engine=self.device.key
        )
        while self._waiting:
            self._flush(self._waiting.popleft())

    def destroy(self) -> None:
        """Go away without a word: nothing lands or completes through this queue pair any more."""
        self.state = QueuePairState.ERROR
        self._stalled_since_ns = None
        self._rewind()
        self._waiting.clear()
        self._completing.clear()

    def _flush(self, chain: WorkRequestChain) -> None:
        if chain.signaled:
            self._report(Completion(chain, CompletionStatus.WR_FLUSH, self.number))

    def _report(self, completion: Completion, extra_ns: int = 0) -> None:
        kernel, profile = self.fabric.kernel, self.fabric.profile
        delay = (
            profile.read_completion_ns
            if completion.chain.operation is Operation.READ
            else profile.write_completion_ns
        )
        due = max(kernel.now_ns + delay + extra_ns, self._completing_due_ns)
        self._completing_due_ns = due
        self._completing.append(completion)
        kernel.call_later(due - kernel.now_ns, self._complete_next)

    def _complete_next(self) -> None:
        if not self._completing:
            return
        completion = self._completing.popleft()
        self.fabric.record("completion", completion.chain, self, status=completion.status.name)
        self.device.notify(completion)
