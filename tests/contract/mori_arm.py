"""What a conformance case needs from whatever runs it: an arm.

An arm stands for one implementation of ``mori.io``, simulated or real. It makes engines and
buffers, knows the time, and injects what it can; ``features`` names what it can. Cases, arms and
this file import neither vLLM nor the simulator and stay within Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass
class Pair:
    """Two engines that know each other, each with one registered buffer of bytes."""

    initiator: Any
    target: Any
    local: Any  # torch.uint8 tensors, one-dimensional
    remote: Any
    local_desc: Any
    remote_desc: Any

    def session(self) -> Any:
        """Transfers between the two buffers, started by the initiator."""
        session = self.initiator.create_session(self.local_desc, self.remote_desc)
        assert session is not None
        return session

    def reverse_session(self) -> Any:
        """The same, started by the target."""
        session = self.target.create_session(self.remote_desc, self.local_desc)
        assert session is not None
        return session


class Arm(Protocol):
    """One implementation. A method below a feature's name may be missing without that feature."""

    mori: Any
    transfer_status: Any
    features: frozenset[str]

    def pair(self, size: int = 1 << 20, **config: int) -> Pair:
        """Two engines in processes of their own; ``config`` is for ``RdmaBackendConfig``."""

    def engine(self, key: str) -> Any:
        """An engine in a process of its own, without backend."""

    def seconds(self) -> float:
        """A clock that never jumps."""

    def sleep(self, seconds: float) -> None:
        """Park this thread."""

    def thread(self, function: Callable[[], None]) -> Callable[[], None]:
        """Start a thread of the initiator's process; the result joins it."""

    # "counts"
    def posted(self, engine: Any) -> tuple[int, int]:
        """Work requests and post calls of ``engine`` so far."""

    def queue_pairs(self, engine: Any) -> int:
        """Queue pairs of ``engine`` so far."""

    # "completions"
    def fail_next(self, engine: Any, status: str, work_request: int) -> None:
        """The next posted chain fails at ``work_request`` with a verbs status such as REM_OP."""

    def lose_next_completion(self, engine: Any) -> None:
        """The next completion never comes."""

    def hold(self, engine: Any, seconds: float) -> None:
        """Every completion of chains posted from now on comes this much later."""

    # "posts"
    def refuse_next_post(self, engine: Any, posted: int) -> None:
        """The provider takes only the first ``posted`` work requests of the next chain."""

    # "events"
    def raise_event(self, engine: Any, name: str) -> None:
        """The driver reports an asynchronous event; QP events are about the first queue pair."""

    # "processes"
    def crash_target(self, pair: Pair) -> None:
        """The target's process is gone."""

    def restart_target(self, pair: Pair) -> None:
        """It is back: same key, address and size of memory; ``pair`` holds the new objects."""

    # "control-plane"
    def mute_target(self, pair: Pair) -> None:
        """The target accepts connections and never answers."""


class Case(NamedTuple):
    """One fact about the library as a function that asserts it."""

    section: str
    check: Callable[[Arm], None]
    needs: frozenset[str]

    @property
    def name(self) -> str:
        """For test reports."""
        return self.section + "-" + self.check.__name__


class Cases:
    """A list of cases; its instances decorate the functions that become cases."""

    def __init__(self) -> None:
        self.all: list[Case] = []

    def __call__(self, section: str, *needs: str) -> Callable[[Callable[[Arm], None]], Any]:
        """``section`` of docs on the library's behaviour; ``needs`` names features of the arm."""

        def register(check: Callable[[Arm], None]) -> Callable[[Arm], None]:
            self.all.append(Case(section, check, frozenset(needs)))
            return check

        return register
