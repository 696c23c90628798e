"""Memory that the RDMA library does not take, does not find, or has lost."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import CannotStrike, Heal, LastingFault
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import RegistrationItem, SessionItem
from sim.verdict import Drop, Fail


class RegistrationFails(ItemFault, frozen=True, tag="registration-fails"):
    """Registering memory fails with an exception; engines do it while they start."""

    items: ClassVar[tuple[type, ...]] = (RegistrationItem,)
    takes: ClassVar[tuple[str, ...]] = ("node",)
    before_start: ClassVar[bool] = True

    def verdict(self, item: Any, scene: Scene) -> Fail:
        return Fail("", "ibv_reg_mr failed: Cannot allocate memory")


class NoSession(ItemFault, frozen=True, tag="no-session"):
    """Creating a session returns nothing, and no error either."""

    items: ClassVar[tuple[type, ...]] = (SessionItem,)
    takes: ClassVar[tuple[str, ...]] = ("node", "peer")

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()


class RegionInvalid(LastingFault, frozen=True, tag="region-invalid"):
    """An engine's memory regions are not valid; what uses them fails with a protection error.

    Those that it registers afterwards are.
    """

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        regions = [
            region
            for device in scene.world.fabric.devices
            if device.process.owner == engine.name and device.alive
            for region in device.regions
        ]
        if not regions:
            raise CannotStrike(f"{engine.name} has registered no memory")
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        overlaps = scene.overlaps
        for region in regions:
            overlaps.begin(("region", region))
            region.is_suspended = True

        def heal() -> None:
            for region in regions:
                region.is_suspended = not overlaps.end(("region", region))

        return heal
