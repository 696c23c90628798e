"""Success that is reported before it is true."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import LandLate, WorkRequestItem
from sim.units import MS


class EarlyCompletion(ItemFault, frozen=True, tag="early-completion"):
    """Success is reported in time, and the bytes land ``by_ms`` later.

    It breaks the library's contract: no connector can notice without looking at the bytes.
    """

    by_ms: Annotated[float, msgspec.Meta(gt=0, le=20_000)] = 20.0

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem,)
    breaks_contract: ClassVar[bool] = True

    def verdict(self, item: Any, scene: Scene) -> LandLate:
        return LandLate(round(self.by_ms * MS))
