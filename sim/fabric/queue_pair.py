"""A reliable connected queue pair: executes posted chains in order, or flushes them.

A chain goes through three places: ``_waiting`` behind others, ``_sending`` on the wire, and
``_landing`` on its way through the network. It lands by one event, whole: its bytes are read and
written at that instant. Only when the wire is interrupted, a part of it lands. While the other
end does not answer, or has no receive posted for a SEND, nothing moves and the first waiting
chain is sent again and again. Everything here runs on the hub or in the posting task and never
blocks.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.fabric.completions import Completions
from sim.fabric.landing import execute, land_prefix, landing_delay_ns
from sim.fabric.link import Flow
from sim.fabric.send_queue import SendQueue
from sim.fabric.timers import Timers
from sim.fabric.verdicts import CompletionItem, PeerPair, completion_status, refuse
from sim.fabric.work import Completion, CompletionStatus, Operation, Send, WorkRequestChain
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


@dataclass(eq=False, slots=True)
class _Stall:
    """Why nothing moves: the next try comes after a multiple of ``period_ns``."""

    since_ns: int
    period_ns: int
    status: CompletionStatus


class QueuePair:
    """One end of a connection; ``peer`` is the other end."""

    def __init__(
        self, fabric: Fabric, device: Device, number: int, depth: int, timers: Timers
    ) -> None:
        self.fabric = fabric
        self.device = device
        self.number = number
        self.state = QueuePairState.RESET
        self.timers = timers
        self.send_queue = SendQueue(fabric.kernel, depth)
        self.receives = 0
        self.silent = False
        """Whether the NIC writes no completions any more; see Fabric.silence."""
        self.peer: QueuePair | None = None
        self._waiting: deque[WorkRequestChain] = deque()
        self._sending: WorkRequestChain | None = None
        self._flow: Flow | None = None
        self._landing: deque[tuple[int, WorkRequestChain]] = deque()  # with the time it is due
        self._landing_due_ns = 0
        self._completions = Completions(self)
        self._stall: _Stall | None = None

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
    def is_landing(self) -> bool:
        """Whether something has left the wire and has not landed yet."""
        return bool(self._landing)

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
        self.fabric.posted(self, chain)
        if self.state is QueuePairState.ERROR:
            self._flush(chain)
            return
        self._waiting.append(chain)
        if self._sending is None and self._stall is None:
            self._send_next()

    def post_receives(self, count: int) -> None:
        """So many more SENDs of the peer can arrive."""
        self.receives += count
        if self.peer is not None:
            self.peer.path_restored()

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
        if not self.reachable:
            self._begin_stall()
        elif not self._has_receive_for(self._landing[0][1]):
            self._begin_receiver_not_ready()
        else:
            execute(self, self._landing.popleft()[1])

    def _has_receive_for(self, chain: WorkRequestChain) -> bool:
        assert self.peer is not None
        return not isinstance(chain, Send) or self.peer.receives > 0

    # ------------------------------------------- no answer from the other end

    def interrupt(self) -> None:
        """The path may have gone: what was on the wire will have to be sent again."""
        repeats_send = self._stall and self._stall.status is CompletionStatus.RNR_RETRY_EXC
        if (self._sending is not None or repeats_send) and not self.reachable:
            self._begin_stall()

    def _begin_stall(self) -> None:
        self._rewind()
        self._stop(
            self.timers.ack_timeout_ns, self.timers.retry_budget_ns, CompletionStatus.RETRY_EXC
        )

    def _begin_receiver_not_ready(self) -> None:
        """The other end has no receive for a SEND, and drops whatever comes after it."""
        assert self.peer is not None
        self._rewind(lands=False)
        period_ns, retries = self.peer.timers.rnr_wait_ns, self.timers.rnr_retries
        budget_ns = None if retries is None else retries * period_ns
        self._stop(period_ns, budget_ns, CompletionStatus.RNR_RETRY_EXC)

    def _stop(self, period_ns: int, budget_ns: int | None, status: CompletionStatus) -> None:
        self._stall = _Stall(self.fabric.kernel.now_ns, period_ns, status)
        if budget_ns is not None:
            self.fabric.kernel.call_later(budget_ns, self._give_up, self._stall)

    def _rewind(self, *, lands: bool = True) -> None:
        """Take everything off the wire; the work requests that were through by then land."""
        if self._flow is not None and self._sending is not None:
            self.fabric.links.stop(self._flow)
            if lands:
                land_prefix(self, self._sending, self._flow.progress)
            self._waiting.appendleft(self._sending)
            self._sending = self._flow = None
        self._waiting.extendleft(chain for _due, chain in reversed(self._landing))
        self._landing.clear()
        self._landing_due_ns = 0

    def path_restored(self) -> None:
        """The next repetition, one time-out after another, gets through."""
        stall = self._stall
        if stall is None or not self._would_be_taken(stall):
            return
        kernel = self.fabric.kernel
        stalled_for = kernel.now_ns - stall.since_ns
        kernel.call_later(-stalled_for % stall.period_ns, self._resume, stall)

    def _would_be_taken(self, stall: _Stall) -> bool:
        if not self.reachable:
            return False
        is_for_a_receive = stall.status is CompletionStatus.RNR_RETRY_EXC
        return not is_for_a_receive or self._has_receive_for(self._waiting[0])

    def _resume(self, stall: _Stall) -> None:
        if stall is self._stall and self._would_be_taken(stall):
            self._stall = None
            self._send_next()

    def _give_up(self, stall: _Stall) -> None:
        if stall is self._stall:
            self.fail_chain(self._waiting.popleft(), 0, stall.status)

    # ------------------------------------------------------------ completing

    def complete(self, chain: WorkRequestChain) -> None:
        """All of ``chain`` was executed; report it if it is signaled."""
        if not chain.signaled:
            return
        item = CompletionItem(chain, self.pair, self.number, CompletionStatus.SUCCESS)
        verdict = self.fabric.verdicts.ask(item)
        done = Completion(chain, CompletionStatus.SUCCESS, self.number)
        match verdict:
            case Deliver():
                self._completions.report(done)
            case Delay(by_ns=by_ns):
                self._completions.report(done, by_ns)
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
        is_tail = is_last and chain.signaled
        self._completions.report(Completion(chain, status, self.number, is_tail, message))
        if not is_last:
            self._flush(chain)
        self.enter_error()

    def enter_error(self) -> None:
        """Go to state ERROR and flush everything outstanding, in order."""
        if self.state is QueuePairState.ERROR:
            return
        self.state = QueuePairState.ERROR
        self._stall = None
        self._rewind()
        self.fabric.kernel.record(
            "queue-pair-error", queue_pair=self.number, engine=self.device.key
        )
        while self._waiting:
            self._flush(self._waiting.popleft())

    def destroy(self) -> None:
        """Go away without a word: nothing lands or completes through this queue pair any more."""
        self.state = QueuePairState.ERROR
        self._stall = None
        self._rewind()
        self._waiting.clear()
        self._completions.clear()

    def _flush(self, chain: WorkRequestChain) -> None:
        if chain.signaled:
            self._completions.report(Completion(chain, CompletionStatus.WR_FLUSH, self.number))
