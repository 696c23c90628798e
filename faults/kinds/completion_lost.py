"""Transfers of which nobody hears again although their bytes are there."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import CompletionItem
from sim.verdict import Drop, Verdict


class CompletionLost(ItemFault, frozen=True, tag="completion-lost"):
    """The bytes of a transfer land, and its status stays in progress for ever."""

    items: ClassVar[tuple[type, ...]] = (CompletionItem,)

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()


class SilentQueuePair(ItemFault, frozen=True, tag="silent-queue-pair"):
    """From the next completion on, a queue pair reports none, of success or of failure.

    Bytes go on landing. Nothing heals it: a connector has to give the queue pair up.
    """

    items: ClassVar[tuple[type, ...]] = (CompletionItem,)

    def verdict(self, item: Any, scene: Scene) -> Verdict:
        scene.silence(item.queue_pair)
        return Drop()
