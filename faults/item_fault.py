"""Faults of single items on their way: messages, work requests, completions, hand-offs, writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from faults.fault import Count, Heal, LastingFault, Point, Whole
from sim.errors import TestbedError
from sim.extensions import place_of
from sim.verdict import Verdict

if TYPE_CHECKING:
    from faults.scene import Scene


class ItemFault(LastingFault, frozen=True):
    """Answers when the fabric, the network, the router or a device asks what becomes of an item.

    From the strike on it lets ``skip`` items of its target go by and then decides on ``count``
    of them, or on all. A trigger that waits for a request makes that request the target.
    """

    skip: Whole = 0
    count: Count | None = 1

    takes: ClassVar[tuple[str, ...]] = ("node", "peer", "request")
    point: ClassVar[Point] = "fabric"
    items: ClassVar[tuple[type, ...]] = ()
    at_once: ClassVar[bool] = True

    def concerns(self, item: Any) -> bool:
        """Whether the kind has a say about ``item``, whoever's it is."""
        return isinstance(item, self.items)

    def verdict(self, item: Any, scene: Scene) -> Verdict | None:
        """What becomes of ``item``; None lets it go and is not counted."""
        raise NotImplementedError

    def strike(self, scene: Scene) -> Heal:
        """Have a say from now on."""
        rule, chain = _Rule(self, scene), scene.verdicts(self.point)
        chain.add(rule)
        return lambda: chain.remove(rule)


class _Rule:
    """One strike of a fault as the verdict chains know it."""

    def __init__(self, fault: ItemFault, scene: Scene) -> None:
        self._fault = fault
        self._scene = scene
        self._to_skip = fault.skip
        self._left = fault.count

    def judge(self, item: Any) -> Verdict | None:
        """The fault's verdict, if it is the item's turn."""
        fault, scene = self._fault, self._scene
        if self._left == 0 or not fault.concerns(item) or not scene.is_about_target(item):
            return None
        if self._to_skip:
            self._to_skip -= 1
            return None
        verdict = fault.verdict(item, scene)
        if not isinstance(verdict, Verdict | None):
            raise TestbedError(
                f"{place_of(type(fault))}: verdict of the kind of fault {fault.kind()!r} returned "
                f"{verdict!r}; expected a verdict of sim/verdict.py, such as Drop(), or None"
            )
        if verdict is not None:
            if self._left is not None:
                self._left -= 1
            scene.hit(scene.requests_of(item), item=type(item).__name__)
        return verdict
