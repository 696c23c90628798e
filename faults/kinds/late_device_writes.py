"""A GPU that is not done with a request when its sampled token is out."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from faults.fault import Point
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.engine.device_writes import DeviceWrite
from sim.request_ids import leg_kind
from sim.units import MS
from sim.verdict import Delay


class LateDeviceWrites(ItemFault, frozen=True, tag="late-device-writes"):
    """A producer's GPU writes drafter rows and states ``by_ms`` after it has sampled.

    The token is out before, so a hand-off that does not wait for the device comes too early.
    Without speculation nothing is written that late. ``count`` counts operations of each rank.
    """

    by_ms: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 20.0

    point: ClassVar[Point] = "device"
    items: ClassVar[tuple[type, ...]] = (DeviceWrite,)
    takes: ClassVar[tuple[str, ...]] = ("node", "rank", "request")

    def concerns(self, item: Any) -> bool:
        if not isinstance(item, DeviceWrite) or self.target.rank not in (None, item.rank):
            return False
        return any(leg_kind(leg) == "p" for leg in item.legs)

    def verdict(self, item: Any, scene: Scene) -> Delay:
        return Delay(round(self.by_ms * MS))
