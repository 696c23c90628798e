"""Bytes that change on their way."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import Count
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import CopyItem, WorkRequestItem
from sim.verdict import Corrupt


class CorruptBytes(ItemFault, frozen=True, tag="corrupt-bytes"):
    """``bits`` bits of a transfer are flipped on the way, and success is reported.

    It breaks the library's contract: no connector can notice without looking at the bytes.
    """

    bits: Count = 1

    items: ClassVar[tuple[type, ...]] = (WorkRequestItem, CopyItem)
    breaks_contract: ClassVar[bool] = True

    def verdict(self, item: Any, scene: Scene) -> Corrupt:
        def flip(payload: Any) -> None:
            for _ in range(self.bits):
                payload[scene.rng.randrange(len(payload))] ^= 1 << scene.rng.randrange(8)

        return Corrupt(flip)
