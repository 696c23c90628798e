"""A router that sits on a hand-off, or loses it."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import Point
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.router.ongoing import HandOff
from sim.router.options import Seconds
from sim.units import seconds_to_ns
from sim.verdict import Delay, Drop


class RouterHold(ItemFault, frozen=True, tag="router-hold"):
    """The router keeps a request for ``seconds`` between its prefill and its decode leg."""

    seconds: Seconds = 65.0

    point: ClassVar[Point] = "router"
    items: ClassVar[tuple[type, ...]] = (HandOff,)
    takes: ClassVar[tuple[str, ...]] = ("node", "request")

    def verdict(self, item: Any, scene: Scene) -> Delay:
        return Delay(seconds_to_ns(self.seconds))


class HandOffLost(ItemFault, frozen=True, tag="hand-off-lost"):
    """The router forgets a request after its prefill leg; the client gets an error.

    No engine is told, so the producer has to find out by itself that nobody will come.
    """

    point: ClassVar[Point] = "router"
    items: ClassVar[tuple[type, ...]] = (HandOff,)
    takes: ClassVar[tuple[str, ...]] = ("node", "request")

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()
