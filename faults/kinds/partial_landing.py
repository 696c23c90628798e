"""Transfers that fail in the middle."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from faults.item_fault import ItemFault
from faults.kinds.completion_error import Status
from faults.scene import Scene
from sim.fabric.verdicts import LandPart, WorkRequestItem


class PartialLanding(ItemFault, frozen=True, tag="partial-landing"):
    """A part of a transfer's work requests lands, and then it ends with an error.

    ``which`` is the first ``share`` of them, the last, or as many that are drawn; at least one is
    missing.
    """

    which: Literal["first", "last", "any"] = "any"
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    code: Status = "RETRY_EXC"

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem,)

    def verdict(self, item: Any, scene: Scene) -> LandPart:
        count = min(round(item.count * self.share), item.count - 1)
        every = range(item.count)
        landed = {
            "first": every[:count],
            "last": every[item.count - count :],
            "any": sorted(scene.rng.sample(every, count)),
        }[self.which]
        return LandPart(tuple(landed), self.code)
