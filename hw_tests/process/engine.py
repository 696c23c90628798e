"""The program of one engine's process: steps without end, and commands between them."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

from hw_tests.process import shared_mori
from hw_tests.process.messages import Blocks, Digests, EngineOptions, Outcome, Role, Snapshot
from hw_tests.process.shared_mori.gate import GATE
from hw_tests.process.side import Side, enter_groups, make_side

import torch  # isort: skip  # after vLLM's variables are set

_STEP_S = 0.005  # between steps, also of an idle engine


class DeviceEvent:
    """Of a device that is always done."""

    def record(self) -> None: ...

    def query(self) -> bool:
        return True


class DeviceStream:
    """Likewise."""

    def synchronize(self) -> None: ...


def stand_in_for_device() -> None:
    """Events and streams for the connector where there is no GPU."""
    cuda: Any = torch.cuda
    cuda.Event, cuda.current_stream = DeviceEvent, DeviceStream
    cuda.Stream, cuda.stream = lambda device: DeviceStream(), nullcontext


@dataclass
class Engine:
    """The commands of a process; a public method is one."""

    side: Side
    is_producer: bool
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _tokens: Counter[str] = field(default_factory=Counter)
    _forwards: Counter[str] = field(default_factory=Counter)
    _found: dict[str, Digests] = field(default_factory=dict)
    _written: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self.side.before_forward = self._before_forward

    def step(self) -> None:
        for output in self.side.step():
            name = output.request_id
            self._tokens[name] += len(output.new_token_ids)
            if output.finish_reason is not None:
                self._outcomes[name] = Outcome(
                    str(output.finish_reason), self._tokens[name], output.kv_transfer_params
                )

    def _before_forward(self, name: str) -> None:
        """A producer's passes write each block of the request once; a consumer's first one finds
        them loaded."""
        self._forwards[name] += 1
        blocks = self.side.blocks[name]
        if self.is_producer:
            written = self._written[name]
            new = [[block for block in ids if block not in written] for ids in blocks]
            self.side.memory.write(new, seed=crc32(f"{name} {self._forwards[name]}".encode()))
            written.update(block for ids in new for block in ids)
        if self.is_producer or self._forwards[name] == 1:
            self._found[name] = self.side.memory.digests_of(blocks)

    # --------------------------------------------------------------- commands

    def add(self, request_id: str, prompt: list[int], max_tokens: int, params: Any) -> None:
        self.side.add(request_id, prompt, max_tokens, params)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            dict(self._outcomes),
            self.side.free_blocks,
            self._forwards.copy(),
            self.side.counters.copy(),
            GATE.waiting,
        )

    def blocks(self, request_id: str) -> Blocks:
        """Of a request when it was last in a step."""
        return self.side.blocks[request_id]

    def owned(self, request_id: str) -> set[int]:
        """All that it ever had."""
        return self.side.owned[request_id]

    def found(self, request_id: str) -> Digests:
        """What a request's blocks held when a consumer's first forward pass began, or after a
        producer's last one."""
        return self._found[request_id]

    def digests(self) -> Digests:
        """Of all memory, now."""
        return self.side.memory.digests()

    def tokens_per_block(self) -> int:
        """Of attention, and of prefix caching."""
        return self.side.tokens_per_block

    def padding(self) -> list[int]:
        """Of the bytes that are no layer's."""
        return self.side.memory.padding()

    def set_gate(self, is_open: bool) -> None:
        """Keep reads under way, or let them go on."""
        GATE.set_open(is_open)

    def deregister_memory(self) -> None:
        """Take all memory of the connector's mori engines out of peers' reach."""
        for engine, memory in _REGISTERED:
            engine.deregister_memory(memory)
        _REGISTERED.clear()


def _take_gpu(role: Role) -> None:
    """On a machine with several GPUs the two sides have one each."""
    number = 0 if role == "kv_producer" else 1
    torch.cuda.set_device(number % torch.cuda.device_count())


_REGISTERED: list[tuple[Any, Any]] = []
"""Each of this process's mori engines with each memory that was registered with it."""


def _record_registrations() -> None:
    """The connector keeps its engine to itself."""
    import mori.io as library  # noqa: PLC0415  # what is loaded depends on the options

    class Recorded(library.IOEngine):
        def register_torch_tensor(self, tensor: Any) -> Any:
            memory = super().register_torch_tensor(tensor)
            _REGISTERED.append((self, memory))
            return memory

    vars(library)["IOEngine"] = Recorded


def _log_events() -> None:
    """The connector's events, one JSON object a line among whatever else is written."""
    events = logging.getLogger("vllm.hybrid_read")
    events.handlers = [logging.StreamHandler(sys.stderr)]
    events.setLevel(logging.INFO)
    events.propagate = False


def _speak(version: int) -> None:
    """Be a connector of another release, as far as the wire tells."""
    from connector import wire  # noqa: PLC0415  # loads vLLM's connector
    from connector.core import fingerprint, offer  # noqa: PLC0415

    for module in (wire, offer, fingerprint):
        vars(module)["PROTOCOL_VERSION"] = version


def run_engine(commands: Connection, options: EngineOptions) -> None:
    """The process: ends when the other end of ``commands`` is closed.

    Args:
        commands: pairs of a command's name and its arguments, each answered with its result.
        options: of the engine.
    """
    if options.stands_in:
        shared_mori.install()
        stand_in_for_device()
    else:
        _take_gpu(options.side.role)
    _log_events()
    _record_registrations()
    if options.protocol_version is not None:
        _speak(options.protocol_version)
    enter_groups()
    side = make_side(options.side)
    side.memory.fill(options.seed)
    engine = Engine(side, options.side.role == "kv_producer")
    commands.send("ready")
    while True:
        while commands.poll(_STEP_S):
            try:
                name, arguments = commands.recv()
            except EOFError:
                return
            commands.send(getattr(engine, name)(**arguments))
        engine.step()
