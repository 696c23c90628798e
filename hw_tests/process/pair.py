"""A prefill and a decode engine as a test sees them: requests, outcomes, events."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hw_tests.process.arms import ProcessArm
from hw_tests.process.launcher import AnyLauncher, AnyProcess, ProcessEnded, until
from hw_tests.process.messages import EngineOptions, Outcome, Role, SideOptions, Snapshot

PROMPT_TOKENS = 300
TRANSFER_TIMEOUT_S = 2.0
LEASE_S = 1.0
"""Of a producer whose lease is to run out; others hold for longer than a test lasts."""
LATE_S = 20.0
"""What a busy machine may add to a deadline."""

_CONSUMER = {
    "transfer_timeout": TRANSFER_TIMEOUT_S,
    "control_timeout": 0.25,
    "fence_timeout": 2.0,
    "renewal_timeout": 60.0,
}
_PRODUCER = {"defer_timeout": 120.0}
_TRIES = 3
_PROGRAM = "hw_tests.process.engine:run_engine"
_numbers = itertools.count(1)


class Prefilled(NamedTuple):
    """A prompt whose blocks a producer holds."""

    request_id: str
    prompt: list[int]
    params: dict[str, Any]


@dataclass
class EngineProcess:
    """One engine; what is not here is a command of `engine.Engine`, by ``call``."""

    process: AnyProcess
    options: EngineOptions
    idle_blocks: int
    asked: set[Role] = field(default_factory=set)
    """Gets the role of this engine with each command."""

    @property
    def ports(self) -> tuple[int, int]:
        """For handshakes and for releases."""
        settings = self.options.side.settings
        return settings["handshake_port"], settings["notify_port"]

    @property
    def loads_in_step(self) -> bool:
        """Whether a step waits for the loads of its requests."""
        return self.options.side.settings.get("load_mode") == "sync"

    @property
    def address(self) -> str:
        return str(self.options.side.settings["host_ip"])

    def call(self, command: str, **arguments: Any) -> Any:
        self.asked.add(self.options.side.role)
        return self.process.call(command, **arguments)

    def snapshot(self) -> Snapshot:
        snapshot: Snapshot = self.call("snapshot")
        return snapshot

    def outcome(self, request_id: str) -> Outcome:
        """Wait for the end of a request."""
        ended: Outcome = until(
            lambda: self.snapshot().outcomes.get(request_id), f"{request_id} ends"
        )
        return ended

    def wait_until_idle(self) -> None:
        """Until all blocks are free."""
        until(lambda: self.snapshot().free_blocks == self.idle_blocks, "all blocks come back")

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the connector has logged under a name."""
        return [event for event in self._events() if event["event"] == name]

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self.process.log.read_text().splitlines():
            if line.startswith('{"'):
                yield json.loads(line)


@dataclass
class Engines:
    """All engines of the tests. One that lives is used again by whoever asks for the same."""

    launchers: Mapping[Role, AnyLauncher]
    arm: ProcessArm
    asked: set[Role] = field(default_factory=set)
    """Roles whose engines were given commands, until somebody clears it."""
    _running: list[tuple[Mapping[str, Any], EngineProcess]] = field(default_factory=list)
    _of_test: list[EngineProcess] = field(default_factory=list)

    def producer(self, model: str = "llama", **changes: Any) -> EngineProcess:
        """Args: as of `_try_to_start`."""
        return self._get(model=model, role="kv_producer", **changes)

    def consumer(self, model: str = "llama", **changes: Any) -> EngineProcess:
        """Args: as of `_try_to_start`."""
        return self._get(model=model, role="kv_consumer", **changes)

    def _get(self, **asked: Any) -> EngineProcess:
        for options, engine in self._running:
            if options == asked and engine.process.is_alive:
                return engine
        engine = self._start(**asked)
        self._running.append((asked, engine))
        return engine

    def start(self, model: str, role: Role, **changes: Any) -> EngineProcess:
        """A new engine, until `end_test`. Args: as of `_try_to_start`."""
        self._of_test.append(self._start(model, role, **changes))
        return self._of_test[-1]

    def end_test(self) -> None:
        """End what the test that is over has started."""
        while self._of_test:
            self._of_test.pop().process.kill()

    def _start(self, *names: Any, **asked: Any) -> EngineProcess:
        """As `_try_to_start`, on other ports if some were taken."""
        for _ in range(_TRIES):
            if (engine := self._try_to_start(*names, **asked)) is not None:
                return engine
        raise AssertionError(f"no free ports in {_TRIES} attempts")

    def _try_to_start(
        self,
        model: str,
        role: Role,
        *,
        ports: tuple[int, int] | None = None,
        block_size: int | None = None,
        protocol_version: int | None = None,
        tp_size: int = 1,
        rank: int = 0,
        max_tokens: int = SideOptions.max_tokens,
        **settings: Any,
    ) -> EngineProcess | None:
        """A new engine; None if a port was taken between looking and listening.

        Args:
            model: a preset's name.
            role: of the engine.
            ports: for handshakes and releases; free ones by default.
            block_size: tokens; the preset's by default.
            protocol_version: of the connector; its own by default.
            tp_size: ranks of the engine.
            rank: the one that this is.
            max_tokens: of the longest request, beyond four blocks.
            settings: of the connector that differ from what tests have.
        """
        launcher = self.launchers[role]
        handshake, notify = ports or (launcher.free_port(), launcher.free_port())
        usual = _PRODUCER if role == "kv_producer" else _CONSUMER
        side = SideOptions(
            model,
            role,
            {
                "host_ip": launcher.address,
                "handshake_port": handshake,
                "notify_port": notify,
                **usual,
                **settings,
            },
            block_size=block_size,
            max_tokens=max_tokens,
            device=self.arm.device,
            tp_size=tp_size,
            rank=rank,
        )
        options = EngineOptions(side, next(_numbers), self.arm.stands_in, protocol_version)
        try:
            process = launcher.start(role, _PROGRAM, options)
        except ProcessEnded as error:
            if ports is None and "choose another port" in str(error):
                return None  # somebody has taken one meanwhile
            raise
        engine = EngineProcess(process, options, 0, self.asked)
        engine.idle_blocks = engine.snapshot().free_blocks
        return engine


def prefill(
    producer: EngineProcess, num_tokens: int = PROMPT_TOKENS, prompt: list[int] | None = None
) -> Prefilled:
    """A prompt that no engine has seen, or this; its blocks are held when this returns."""
    number = next(_numbers)
    request_id = f"prefill-{number}"
    prompt = prompt or [1000 + number, *range(1, num_tokens)]
    asked = {"do_remote_decode": True, "transfer_id": f"transfer-{number}"}
    producer.call("add", request_id=request_id, prompt=prompt, max_tokens=1, params=asked)
    outcome = producer.outcome(request_id)
    assert outcome.params is not None
    return Prefilled(request_id, prompt, outcome.params)


def decode(consumer: EngineProcess, prefilled: Prefilled, **changes: Any) -> str:
    """Add the decode leg; ``changes`` are to its parameters, as a router could make them."""
    request_id = f"decode-{next(_numbers)}"
    params = {**prefilled.params, **changes}
    consumer.call(
        "add", request_id=request_id, prompt=prefilled.prompt, max_tokens=2, params=params
    )
    return request_id
