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


def finished(status: Any) -> Any:
    """The status of a transfer, once it is final."""
    status.WaitFor(20_000)  # milliseconds
    assert not status.InProgress()
    return status


class Arm(Protocol):
    """One implementation. A method below a feature's name may be missing without that feature."""

    mori: Any
    transfer_status: Any
    features: frozenset[str]

    def pair(
        self, size: int = 1 << 20, *, target: dict[str, int] | None = None, **config: int
    ) -> Pair:
        """Two engines in processes of their own; ``config`` is for ``RdmaBackendConfig``.

        Notifications are off unless ``config`` says otherwise; ``target`` is what the target's
        configuration has different.
        """

    def engine(self, key: str) -> Any:
        """An engine in a process of its own, without backend."""

    def seconds(self) -> float:
        """A clock that never jumps."""

    def sleep(self, seconds: float) -> None:
        """Park this thread."""

    def thread(self, function: Callable[[], None]) -> Callable[[], None]:
        """Start a thread of the initiator's process; the result joins it."""

    def set_environment(self, name: str, value: str) -> None:
        """Set a variable that the library reads when a backend is made."""

    # "transport"
    def transports(self, settings: Any) -> tuple[Any, Any, Any]:
        """The connector's module for ``mori.io``, and of its class a consumer's and a producer's.

        Each has its engine in a process of its own, where the arm has several.
        """

    # "operating-system": the library runs in a process that the case has for itself
    def sleepless_threads(self) -> int:
        """Threads of the process that never sleep while somebody looks at them, many times."""

    def written(self, function: Callable[[], None]) -> str:
        """What the process writes to its output and errors while ``function`` runs."""

    def num_threads(self) -> int:
        """Of the process."""

    # "counts"
    def posted(self, engine: Any) -> tuple[int, int]:
        """Work requests and post calls of ``engine`` so far."""

    def queue_pairs(self, engine: Any) -> int:
        """Queue pairs of ``engine`` so far."""

    def memory_regions(self, engine: Any) -> tuple[int, int]:
        """Memory regions that ``engine`` has asked the NIC for so far, and those not given back."""

    # "attributes"
    def asked_of_the_nic(self, engine: Any) -> dict[str, int]:
        """By verbs' names, what the newest queue pair and memory region were made with."""

    # "completions"
    def fail_next(self, engine: Any, status: str, work_request: int) -> None:
        """The next posted chain fails at ``work_request`` with a verbs status such as REM_OP."""

    def lose_next_completion(self, engine: Any) -> None:
        """The next completion never comes."""

    def hold(self, engine: Any, seconds: float) -> None:
        """Every completion of chains posted from now on comes this much later."""

    def fail_next_notification(self, engine: Any, status: str) -> None:
        """The next posted notification fails with a verbs status such as RNR_RETRY_EXC."""

    # "posts"
    def refuse_next_post(self, engine: Any, posted: int) -> None:
        """The provider takes only the first ``posted`` work requests of the next chain."""

    def refuse_next_notification(self, engine: Any) -> None:
        """The provider does not take the next notification."""

    # "events"
    def raise_event(self, engine: Any, name: str) -> None:
        """The driver reports an asynchronous event; QP events are about the first queue pair."""

    # "processes"
    def crash_target(self, pair: Pair) -> None:
        """The target's process is gone."""

    def restart_target(self, pair: Pair) -> None:
        """It is back: same key, address and size of memory; ``pair`` holds the new objects."""

    # "xgmi": two GPUs of one machine; "gpu-rdma": a NIC that reaches GPU memory
    def gpu_pair(
        self,
        size: int,
        *,
        backends: tuple[str, ...] = ("XGMI",),
        rdma: dict[str, int] | None = None,
        target: dict[str, int] | None = None,
    ) -> Pair:
        """Like ``pair``, with processes of one machine and buffers of two GPUs.

        The backends are created in the order given; ``rdma`` is for ``RdmaBackendConfig``.
        """

    def gpu_buffer(self, size: int) -> Any:
        """Bytes in GPU memory, zeroed, as a one-dimensional tensor."""

    def register_gpu(self, engine: Any, tensor: Any) -> Any:
        """Register a tensor, which may be a part of another, as memory of the engine's GPU."""

    # "copies"
    def copies(self, engine: Any) -> int:
        """Copies between GPUs that ``engine`` has started so far."""

    def fail_next_copy(self, engine: Any, kind: str) -> None:
        """The next call over XGMI meets a driver that refused it or failed later, or no-stream."""

    # "no-device"
    def engine_without_rdma(self, key: str, *, fall_back: bool) -> Any:
        """An engine on a machine without NIC, told or not told to use XGMI instead."""

    # "control-plane"
    def mute_target(self, pair: Pair) -> None:
        """The target accepts connections and never answers."""


_LIBRARY = ("mori", "transfer_status", "pair", "engine", "transports", "gpu_pair",
            "engine_without_rdma")  # fmt: skip
"""What an arm has of the library itself."""


class Watched:
    """An arm, and whether anything of the library was asked of it."""

    def __init__(self, arm: Any) -> None:
        self._arm = arm
        self.has_been_asked = False

    def __getattr__(self, name: str) -> Any:
        self.has_been_asked |= name in _LIBRARY
        return getattr(self._arm, name)


class OnGpus:
    """An arm whose pairs have their memory on two GPUs, reached over ``backend``."""

    def __init__(self, arm: Any, backend: str) -> None:
        self._arm = arm
        self._backend = backend

    def pair(
        self, size: int = 1 << 20, *, target: dict[str, int] | None = None, **config: int
    ) -> Pair:
        """As of the arm."""
        pair: Pair = self._arm.gpu_pair(size, backends=(self._backend,), rdma=config, target=target)
        return pair

    def __getattr__(self, name: str) -> Any:
        return getattr(self._arm, name)


BACKEND_OF = {"gpu-rdma": "RDMA", "xgmi": "XGMI"}
"""Features of an arm that are places for the memory of a case, besides that of the host."""


class Case(NamedTuple):
    """One fact about the library as a function that asserts it, and where its memory is."""

    section: str
    body: Callable[[Arm], None]
    needs: frozenset[str]
    place: str | None = None  # a key of BACKEND_OF

    @property
    def name(self) -> str:
        """For test reports."""
        suffix = f"-{self.place}" if self.place else ""
        return f"{self.section}-{self.body.__name__}{suffix}"

    def check(self, arm: Any) -> None:
        """Assert it of ``arm``.

        Raises:
            AssertionError: it is not so, or the body has asked nothing of the library, so that it
                would pass on any.
        """
        watched = Watched(arm)
        self.body(OnGpus(watched, BACKEND_OF[self.place]) if self.place else watched)
        assert watched.has_been_asked, (
            f"{self.name}: its body has asked nothing of the library, and would pass on any; "
            f"expected one of: {', '.join(f'arm.{name}' for name in _LIBRARY)}"
        )


class Cases:
    """A list of cases; its instances decorate the functions that become cases.

    Args:
        over: where else than in the host's memory they run, unless one of them says otherwise.
    """

    def __init__(self, *over: str) -> None:
        self.all: list[Case] = []
        self._over = over

    def __call__(
        self, section: str, *needs: str, over: tuple[str, ...] | None = None
    ) -> Callable[[Callable[[Arm], None]], Any]:
        """``section`` of docs on the library's behaviour; ``needs`` names features of the arm.

        ``over`` names places of the memory for which the same has to be true.
        """

        def register(check: Callable[[Arm], None]) -> Callable[[Arm], None]:
            self.all.append(Case(section, check, frozenset(needs)))
            for place in self._over if over is None else over:
                self.all.append(Case(section, check, frozenset({*needs, place}), place))
            return check

        return register
