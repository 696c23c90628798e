"""RDMA links that are down, slow, or far."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from faults.fault import CannotStrike, Heal, LastingFault
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import WorkRequestItem
from sim.units import US
from sim.verdict import Delay

Microseconds = Annotated[float, msgspec.Meta(ge=0, le=20e6)]


class LinkDown(LastingFault, frozen=True, tag="link-down"):
    """The cable of a machine's NICs is pulled; RDMA stalls, and fails after the retry budget.

    Plugged in again within half a second, transfers go on.
    """

    for_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = 2.0

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        nics = scene.nics(engine)
        if not nics:
            raise CannotStrike(f"{engine.name} has no NIC in use")
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        fabric, overlaps = scene.world.fabric, scene.overlaps
        for nic in nics:
            if overlaps.begin(("port", nic)):
                fabric.set_port(nic, up=False)

        def heal() -> None:
            for nic in nics:
                if overlaps.end(("port", nic)):
                    fabric.set_port(nic, up=True)

        return heal


class BandwidthReduced(LastingFault, frozen=True, tag="bandwidth-reduced"):
    """A machine's NICs carry only ``fraction`` of their line rate; of several the latest counts."""

    fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.01

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        nics = scene.nics(engine)
        if not nics:
            raise CannotStrike(f"{engine.name} has no NIC in use")
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        fabric, overlaps = scene.world.fabric, scene.overlaps
        for nic in nics:
            overlaps.begin(("speed", nic))
            fabric.set_speed(nic, self.fraction)

        def heal() -> None:
            for nic in nics:
                if overlaps.end(("speed", nic)):
                    fabric.set_speed(nic, 1.0)

        return heal


class LatencySpike(ItemFault, frozen=True, tag="latency-spike"):
    """Transfers land ``by_us`` later, and up to ``jitter_us`` more, which is drawn for each."""

    by_us: Microseconds = 2_000.0
    jitter_us: Microseconds = 1_000.0

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem,)

    def verdict(self, item: Any, scene: Scene) -> Delay:
        return Delay(round((self.by_us + scene.rng.uniform(0, self.jitter_us)) * US))


class QueuePairSkew(ItemFault, frozen=True, tag="queue-pair-skew"):
    """Each queue pair is late by a time of its own, so that transfers complete in another order.

    Within a queue pair the order stays.
    """

    up_to_us: Microseconds = 5_000.0

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem,)

    def verdict(self, item: Any, scene: Scene) -> Delay:
        share = scene.share_of(item.queue_pair)
        return Delay(round(share * self.up_to_us * US))
