"""Send queues that have no room, and drivers that take only a part."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import Whole
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import PostItem, PostPart
from sim.verdict import Fail, Verdict


class SendQueueFull(ItemFault, frozen=True, tag="send-queue-full"):
    """Posting finds the send queue full for as long as the library waits: 'SQ full'.

    What the call posted before, to other queue pairs or in earlier chains, lands all the same.
    """

    items: ClassVar[tuple[type, ...]] = (PostItem,)

    def verdict(self, item: Any, scene: Scene) -> Fail:
        return Fail("SQ_FULL", "")


class PostRefused(ItemFault, frozen=True, tag="post-refused"):
    """The driver takes the first ``posted`` work requests of a chain and refuses the rest.

    What it took lands without anybody being told, and the endpoint takes nothing any more. With
    ``posted`` 0 it goes on being usable.
    """

    posted: Whole = 1

    items: ClassVar[tuple[type, ...]] = (PostItem,)

    def verdict(self, item: Any, scene: Scene) -> Verdict | None:
        if self.posted >= item.count:
            return None
        return PostPart(self.posted) if self.posted else Fail("ENOMEM", "")
