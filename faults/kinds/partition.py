"""Networks that carry nothing between two machines, and peers that do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from faults.fault import Count, Heal, LastingFault, Point
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import ControlItem
from sim.network import MessageInFlight
from sim.verdict import Drop

if TYPE_CHECKING:
    from sim.engine.engine import Engine


class Partition(LastingFault, frozen=True, tag="partition"):
    """Nothing gets through between two machines, or only in one direction.

    ``ways`` ``out`` stops what the target's node sends to its peer, ``in`` the other direction.
    ``rdma`` cuts RDMA as well, which needs both directions. What was held arrives after the heal.
    """

    for_s: float | None = 2.0
    ways: Literal["both", "out", "in"] = "both"
    rdma: bool = True

    takes: ClassVar[tuple[str, ...]] = ("node", "peer")

    def strike(self, scene: Scene) -> Heal:
        one, other = scene.pair()
        scene.hit(scene.lifecycle.requests_on(one.name, other.name), nodes=[one.name, other.name])
        ends = {"both": [(one, other), (other, one)], "out": [(one, other)], "in": [(other, one)]}
        cuts = ends[self.ways]
        for source, target in cuts:
            _cut(scene, source, target)
        if self.rdma:
            scene.world.fabric.cut(one.node.name, other.node.name)

        def heal() -> None:
            for source, target in cuts:
                _heal(scene, source, target)
            if self.rdma:
                scene.world.fabric.heal(one.node.name, other.node.name)

        return heal


def _cut(scene: Scene, source: Engine, target: Engine) -> None:
    if scene.overlaps.begin(("cut", source.node.name, target.node.name)):
        scene.world.network.partition(source.node, target.node, both_ways=False)


def _heal(scene: Scene, source: Engine, target: Engine) -> None:
    if scene.overlaps.end(("cut", source.node.name, target.node.name)):
        scene.world.network.heal(source.node, target.node, both_ways=False)


class NeverAnswers(ItemFault, frozen=True, tag="never-answers"):
    """An engine accepts connections and messages, and answers nothing: not one message leaves it.

    ``peer`` limits it to one other engine. RDMA that is set up goes on.
    """

    for_s: float | None = 5.0
    count: Count | None = None

    point: ClassVar[Point] = "network"
    items: ClassVar[tuple[type, ...]] = (MessageInFlight,)
    takes: ClassVar[tuple[str, ...]] = ("node", "peer")

    def concerns(self, item: Any) -> bool:
        return isinstance(item, MessageInFlight) and item.kind == "message"

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()


class ControlPlaneSilent(ItemFault, frozen=True, tag="control-plane-silent"):
    """The RDMA library of a peer accepts a control connection and never answers on it.

    Creating a session waits for its time-out, with the GIL held, and fails.
    """

    items: ClassVar[tuple[type, ...]] = (ControlItem,)
    takes: ClassVar[tuple[str, ...]] = ("node", "peer")

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()
