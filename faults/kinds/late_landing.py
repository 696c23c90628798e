"""Bytes that land long after everybody has stopped waiting for them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import CopyItem, WorkRequestItem
from sim.units import seconds_to_ns
from sim.verdict import Delay

MAX_OPERATION_LIFETIME_S = 20.0
"""No operation lands later than this: a NIC gives up long before."""


class LateLanding(ItemFault, frozen=True, tag="late-landing"):
    """A transfer lands ``by_s`` late, whoever owns the memory by then, and completes after that.

    What follows on its queue pair waits. Nothing lands through a queue pair that was destroyed.
    """

    by_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_OPERATION_LIFETIME_S)] = 10.0

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem, CopyItem)

    def verdict(self, item: Any, scene: Scene) -> Delay:
        return Delay(seconds_to_ns(self.by_s))
