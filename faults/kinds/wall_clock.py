"""Wall clocks that jump."""

from __future__ import annotations

from faults.fault import Heal, LastingFault
from faults.scene import Scene
from sim.units import SECOND


class WallClockJump(LastingFault, frozen=True, tag="wall-clock-jump"):
    """The wall clock of a machine jumps by ``by_s``, back or ahead; monotonic clocks do not."""

    by_s: float = 3_600.0

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        node = engine.node
        scene.hit(scene.lifecycle.requests_on(engine.name), node=node.name)
        by_ns = round(self.by_s * SECOND)
        node.wall_offset_ns += by_ns

        def heal() -> None:
            node.wall_offset_ns -= by_ns

        return heal
