"""Engines for tests of the router: they answer after a fixed virtual time, as they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sim.engine.connectors import SideChannel
from sim.engine.options import EngineOptions
from sim.kernel import Kernel, Seed
from sim.probes import Probe, Probes
from sim.request_ids import leg_of
from sim.units import MS

STEP_NS = 10 * MS


@dataclass
class Stats:
    """The field of vLLM's PrefillStats that the router reads."""

    num_external_cached_tokens: int


@dataclass
class Output:
    """The fields of vLLM's EngineCoreOutput that the router reads."""

    request_id: str
    new_token_ids: list[int]
    finish_reason: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    prefill_stats: Stats | None = None


@dataclass
class FakeEngine:
    """Gives blocks after one step, then a token a step; a ``silent`` one leaves it to the test."""

    surroundings: FakeWorld
    name: str
    options: EngineOptions = field(default_factory=EngineOptions)
    data_parallel_rank: int = 0
    alive: bool = True
    on_output: Any = None
    silent: bool = False
    finish_reason: str = "length"
    returned_params: dict[str, Any] | None = None
    requests: list[Any] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    @property
    def side_channel(self) -> SideChannel:
        return SideChannel(f"host-of-{self.name}", 6301, 61005)

    def add_request(self, request: Any) -> None:
        self.requests.append(request)
        if self.silent:
            return
        self._later(1, lambda: self.give_blocks(leg_of(request.request_id)))
        for number in range(request.sampling_params.max_tokens):
            self._later(2 + number, lambda number=number: self._token(request, number))

    def abort(self, request_ids: list[str]) -> None:
        self.aborted += request_ids

    def give_blocks(self, request_id: str) -> None:
        self.surroundings.probes.blocks_held(self.name, request_id, 0, [1])

    def answer(self, request_id: str, tokens: list[int], finish_reason: str | None = None) -> None:
        self.on_output(self, Output(request_id, tokens, finish_reason))

    def die(self) -> None:
        self.alive = False
        self.surroundings.probes.engine_died(self.name, "crashed", injected=True, traceback=())

    def params_of(self, index: int = -1) -> dict[str, Any] | None:
        extra = self.requests[index].sampling_params.extra_args
        return None if extra is None else extra["kv_transfer_params"]

    def _later(self, steps: int, action: Callable[[], None]) -> None:
        self.surroundings.kernel.call_later(steps * STEP_NS, lambda: self.alive and action())

    def _token(self, request: Any, number: int) -> None:
        last = number + 1 == request.sampling_params.max_tokens
        self.on_output(
            self,
            Output(
                request.request_id,
                [100 + number],
                self.finish_reason if last else None,
                self.returned_params if last else None,
                Stats(7) if number == 0 else None,
            ),
        )


@dataclass
class FakeWorld:
    """What the router needs of a world."""

    kernel: Kernel
    probes: Probes
    vocab_size: int = 1_000


class Seen(Probe):
    """Keeps what the router told its probes."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.ended: list[tuple[str, str, list[int]]] = []

    def request_started(self, request_id: str) -> None:
        self.started.append(request_id)

    def request_ended(self, request_id: str, outcome: str, tokens: list[int]) -> None:
        self.ended.append((request_id, outcome, tokens))


def fake_world(*, perturb: bool = False) -> FakeWorld:
    kernel = Kernel(Seed(1), perturb=perturb)
    return FakeWorld(kernel, Probes(kernel.own))
