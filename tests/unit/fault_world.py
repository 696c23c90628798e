"""A fault at work on a fabric of two machines, without engines: what it does to bytes."""

from __future__ import annotations

import random
from collections.abc import Hashable
from typing import Any

from faults.fault import Heal
from faults.item_fault import ItemFault
from faults.schedule import parse
from sim.fabric import Fabric
from sim.verdict import VerdictChain


class BareScene:
    """What an ItemFault needs of a scene; every item is the target's."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rng = random.Random(1)
        self.hits: list[str] = []
        self._shares: dict[Hashable, float] = {}

    def verdicts(self, point: str) -> VerdictChain:
        assert point == "fabric"
        return self.fabric.verdicts

    def is_about_target(self, item: Any) -> bool:
        return True

    def requests_of(self, item: Any) -> list[str]:
        return []

    def hit(self, requests: list[str], item: str) -> None:
        self.hits.append(item)

    def silence(self, queue_pair: int) -> None:
        self.fabric.silence(next(q for q in self.fabric.queue_pairs() if q.number == queue_pair))

    def share_of(self, what: Hashable) -> float:
        return self._shares.setdefault(what, self.rng.random())


def inject(fabric: Fabric, text: str) -> tuple[BareScene, Heal]:
    """Let the fault that ``--fault`` would call ``text`` strike ``fabric`` now."""
    fault, scene = parse(text), BareScene(fabric)
    assert isinstance(fault, ItemFault)
    return scene, fault.strike(scene)  # type: ignore[arg-type]
