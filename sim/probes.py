"""What oracles and ledgers may watch: the calls that engines, workers and the router make.

A probe sees the run from outside, as it happens, and changes nothing. The event log tells the
story to people; probes get the live objects, because a million versions of blocks are no story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple


class StepTimes(NamedTuple):
    """One engine step: from the call of vLLM's step function to its return."""

    node: str
    start_ns: int
    end_ns: int
    model_executed: bool

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


OF_ANOTHER_CONTINUATION = "drafter-row"
"""A kind of wrong bytes: a block's last row of a drafter, made from another token after it, where
prefix caching can have brought the block."""


@dataclass(frozen=True, slots=True)
class WrongBytes:
    """A forward pass read bytes that are not the ones its request's tokens define.

    ``found`` says what was there instead, in words; ``owner`` is the request whose bytes they
    are, when they are another's. Token positions are inclusive, blocks in order of position.
    ``written_ns`` and ``writer`` are of the last write to the first block, ``history`` in words.
    ``kind`` is None but for what has a name of its own.
    """

    node: str
    rank: int
    request_id: str
    layer: str
    group: int
    block_ids: tuple[int, ...]
    first_token: int
    last_token: int
    found: str
    owner: str | None
    history: tuple[str, ...]
    written_ns: int | None = None
    writer: str = ""
    kind: str | None = None


class Probe:
    """Base of everything that watches; each handler does nothing unless overridden."""

    def engine_started(self, engine: Any) -> None:
        """``engine`` (sim.engine.Engine) is up; after a restart this comes again."""

    def engine_died(
        self, node: str, reason: str, *, injected: bool, traceback: Sequence[str]
    ) -> None:
        """The engine loop ended: by an exception of its own, or because it was crashed.

        ``traceback`` is what the exception came through, innermost first (sim.kernel.frames).
        """

    def blocks_held(self, node: str, request_id: str, group: int, block_ids: list[int]) -> None:
        """The scheduler added blocks to what ``request_id`` holds in a KV cache group."""

    def blocks_freed(self, node: str, request_id: str) -> None:
        """The scheduler gave up everything that ``request_id`` held."""

    def blocks_refused(self, node: str, request_id: str) -> None:
        """``request_id`` wanted more blocks than the scheduler had for it."""

    def before_landing(self, landing: Any) -> None:
        """Bytes of a work request are about to be written (sim.fabric landing record)."""

    def after_landing(self, landing: Any) -> None:
        """They were written."""

    def transfer_posted(self, chain: Any) -> None:
        """Work requests (sim.fabric WorkRequestChain) were posted to a queue pair."""

    def transfer_ended(self, chain: Any, status: str) -> None:
        """Its completion came, with the status's name; or it was REFUSED when it was posted, or
        LOST with its queue pair."""

    def zeroing_wanted(self, node: str, block_ids: list[int]) -> None:
        """The scheduler wants new blocks zeroed before the next forward pass."""

    def blocks_zeroed(self, node: str, rank: int, block_ids: list[int]) -> None:
        """They were zeroed on a rank."""

    def blocks_read(self, node: str, rank: int, request_id: str, group: int, blocks: Any) -> None:
        """A forward pass attends to ``blocks`` (int array) whose content is new to the request."""

    def exception_logged(self, node: str, error: BaseException) -> None:
        """A guest, in a process of the engine or machine ``node``, has written it to its log."""

    def wrong_bytes(self, finding: WrongBytes) -> None:
        """A forward pass found wrong content."""

    def sending_finished(self, node: str, rank: int, request_id: str) -> None:
        """A worker's connector reported that P's blocks of the request may go."""

    def receiving_finished(self, node: str, rank: int, request_id: str, *, failed: bool) -> None:
        """A worker's connector reported the end of an asynchronous load."""

    def blocks_not_loaded(self, node: str, rank: int, block_ids: list[int]) -> None:
        """A worker's connector reported blocks whose load failed, in a step or beside it."""

    def drafts_verified(self, request_id: str, accepted: list[int], drafts: int) -> None:
        """A leg that decoded speculatively has ended: how many drafts each step accepted, and how
        many there were in all."""

    def step_done(self, step: StepTimes) -> None:
        """An engine step returned."""

    def steps_skipped(self, count: int, last: StepTimes) -> None:
        """So many steps are passed over, because they would find nothing; ``last`` is the last."""

    def workload_began(self) -> None:
        """All engines are up; the arrival times of requests count from now."""

    def request_started(self, request_id: str) -> None:
        """The router took a request from its client."""

    def params_lent(self, request_id: str, owner: str) -> None:
        """A router in error gave a consumer the transfer parameters of another request."""

    def sample_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        """One of several samples of a request ended well, and others have not ended yet."""

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        """The client got its last word: ``outcome`` is a finish reason, error or aborted."""

    def quiet_phase_began(self) -> None:
        """From now on nothing is broken any more."""


_EVENTS = tuple(name for name in vars(Probe) if not name.startswith("_"))


class Probes(Probe):
    """All probes of a run: what it is told, it tells all of them, in order of addition."""

    def __init__(self, own: Callable[..., Any]) -> None:
        """``own`` calls what is no code under test (Kernel.own)."""
        self._own = own
        self._probes: list[Probe] = []
        self._handlers: dict[str, list[Callable[..., None]]] = {}
        for event in _EVENTS:
            setattr(self, event, partial(self._tell, event))

    def add(self, probe: Probe) -> None:
        self._probes.append(probe)
        self._handlers.clear()

    def __iter__(self) -> Iterator[Probe]:
        return iter(self._probes)

    def _tell(self, event: str, *args: Any, **kwargs: Any) -> None:
        for handler in self._handling(event):
            self._own(handler, *args, **kwargs)

    def _handling(self, name: str) -> list[Callable[..., None]]:
        """The handlers of that name that do something; most probes have few."""
        if name not in self._handlers:
            ignored = getattr(Probe, name)
            handlers = [getattr(probe, name) for probe in self._probes]
            self._handlers[name] = [
                handler for handler in handlers if getattr(handler, "__func__", None) is not ignored
            ]
        return self._handlers[name]
