"""Clients whose answer ends before its length."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import Point, Whole
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.router.ongoing import FirstLeg
from sim.verdict import Corrupt


class StopToken(ItemFault, frozen=True, tag="stop-token"):
    """The client of a request gives as a stop token what its answer has after ``after`` tokens.

    With 0 it is the first token, so that the prefill leg ends with ``stop`` instead of ``length``.
    """

    after: Whole = 0

    point: ClassVar[Point] = "router"
    items: ClassVar[tuple[type, ...]] = (FirstLeg,)
    takes: ClassVar[tuple[str, ...]] = ("node", "request")

    def verdict(self, item: Any, scene: Scene) -> Corrupt:
        token = scene.bed.answer_of(item.request_id, self.after + 1)[-1]
        return Corrupt(lambda given: (*given, token))
