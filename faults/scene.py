"""What a fault sees of a run when it strikes: engines, hardware, requests, and its own chance."""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from faults.fault import CannotStrike, Fault, Point
from sim.engine.device_writes import DeviceWrite
from sim.fabric.nic import Nic
from sim.fabric.verdicts import RegistrationItem
from sim.network import MessageInFlight
from sim.request_ids import logical_id
from sim.router.ongoing import FirstLeg, HandOff
from sim.verdict import VerdictChain

if TYPE_CHECKING:
    from faults.nemesis import Nemesis
    from sim.engine.engine import Engine


class Scene:
    """One strike of one fault. ``requests`` are those that the trigger or the target named."""

    def __init__(
        self, nemesis: Nemesis, number: int, fault: Fault, rng: random.Random, request: str | None
    ) -> None:
        self.bed = nemesis.bed
        self.world = nemesis.bed.world
        self.kernel = nemesis.bed.kernel
        self.lifecycle = nemesis.lifecycle
        self.overlaps = nemesis.overlaps
        self.rng = rng
        self.target = fault.target
        self.request = request if request is not None else fault.target.request
        self._nemesis = nemesis
        self._number = number
        self._shares: dict[Hashable, float] = {}

    # ---------------------------------------------------------------- whom

    def engine(self) -> Engine:
        """The target's engine, or one that is drawn; it is up."""
        if self.target.node is not None:
            return self._up(self.bed.engine(self.target.node))
        up = [engine for engine in self.bed.engines if engine.alive]
        if not up:
            raise CannotStrike("no engine is up")
        return self.rng.choice(up)

    def any_engine(self) -> Engine:
        """The target's engine, or one that is drawn; it need not be up."""
        name = self.target.node
        return self.rng.choice(self.bed.engines) if name is None else self.bed.engine(name)

    def pair(self) -> tuple[Engine, Engine]:
        """Two engines on different machines: as the target says, the rest drawn; up or not."""
        engines = self.bed.engines
        one = self.any_engine()
        if self.target.peer is not None:
            return one, self.bed.engine(self.target.peer)
        others = [e for e in engines if e.node is not one.node and e.connector is not None]
        partners = [e for e in others if e.connector.role != role_of(one)] or others  # type: ignore[union-attr]
        if not partners:
            raise CannotStrike(f"{one.name} has no peer on another machine")
        return one, self.rng.choice(partners)

    def client_request(self) -> str:
        """The target's request, or one of those under way; its client still waits."""
        under_way = self.lifecycle.under_way()
        if self.request is not None:
            if self.request not in under_way:
                raise CannotStrike(f"{self.request} is not under way")
            return self.request
        if not under_way:
            raise CannotStrike("no request is under way")
        return self.rng.choice(under_way)

    @staticmethod
    def _up(engine: Engine) -> Engine:
        if not engine.alive:
            raise CannotStrike(f"{engine.name} is down")
        return engine

    def nics(self, engine: Engine) -> list[Nic]:
        """The NICs that the engine's RDMA devices use."""
        devices = self.world.fabric.devices
        return list(dict.fromkeys(d.nic for d in devices if d.process.node is engine.node))

    def verdicts(self, point: Point) -> VerdictChain:
        """Where items of this part of the world are judged."""
        chains = {
            "fabric": self.world.fabric.verdicts,
            "network": self.world.network.verdicts,
            "router": self.bed.router.verdicts,
            "device": self.world.device_verdicts,
        }
        return chains[point]

    def share_of(self, what: Hashable) -> float:
        """A number below 1 that is drawn for each ``what`` once."""
        if what not in self._shares:
            self._shares[what] = self.rng.random()
        return self._shares[what]

    def silence(self, queue_pair: int) -> None:
        """Queue pair number ``queue_pair`` reports no completion any more."""
        fabric = self.world.fabric
        fabric.silence(next(q for q in fabric.queue_pairs() if q.number == queue_pair))

    # --------------------------------------------------------------- items

    def is_about_target(self, item: Any) -> bool:
        """Whether an item is between the target's ends and of its request."""
        here, there = self._ends(item)
        if self.target.node not in (None, here) or self.target.peer not in (None, there):
            return False
        return self.request is None or self.request in self.requests_of(item)

    def requests_of(self, item: Any) -> list[str]:
        """The requests that an item is about; of a handshake, all that wait for it.

        Memory is registered for an engine, whatever requests it has.
        """
        if isinstance(item, RegistrationItem):
            return []
        if isinstance(item, FirstLeg | HandOff):
            return [item.request_id]
        if isinstance(item, DeviceWrite):
            return list(dict.fromkeys(map(logical_id, item.legs)))
        if hasattr(item, "chain"):
            return list(self.lifecycle.requests_of(item.chain))
        if isinstance(item, MessageInFlight):
            named = [r for r in self.lifecycle.known() if _names(item.frames, r)]
            if named:
                return named
        ends = [end for end in self._ends(item) if end is not None]
        return self.lifecycle.requests_on(*ends)

    def _ends(self, item: Any) -> tuple[str | None, str | None]:
        """The engines at the end that acts and at the other one."""
        if isinstance(item, MessageInFlight):
            return item.source, item.target
        if isinstance(item, DeviceWrite):
            return item.engine, None
        if isinstance(item, FirstLeg | HandOff):
            return item.producer.name, None
        owners = self.world.fabric.owners
        if isinstance(item, RegistrationItem):
            return owners.get(item.engine), None
        return owners.get(item.pair.initiator), owners.get(item.pair.target)

    # ----------------------------------------------------------- what happened

    def hit(self, requests: Iterable[str], **fields: Any) -> None:
        """Note that the fault has reached these requests, in the phases they are in."""
        self._nemesis.hit(self._number, list(requests), fields)


def role_of(engine: Engine) -> str | None:
    """As vLLM names it; None of one that has no connector."""
    return engine.connector.role if engine.connector is not None else None


def _names(frames: Iterable[bytes], request: str) -> bool:
    pattern = re.compile(re.escape(request.encode()) + rb"(?!\w)")
    return any(pattern.search(frame) for frame in frames)
