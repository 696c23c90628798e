"""Memory that the RDMA library does not take, does not find, or has lost."""

from __future__ import annotations

from typing import Any, ClassVar

from faults.fault import CannotStrike, Fault
from faults.item_fault import ItemFault
from faults.scene import Scene
from sim.fabric.verdicts import RegistrationItem, SessionItem
from sim.lifecycle import Phase
from sim.verdict import Drop, Fail


class RegistrationFails(ItemFault, frozen=True, tag="registration-fails"):
    """Registering memory fails with an exception; engines do it while they start."""

    items: ClassVar[tuple[type, ...]] = (RegistrationItem,)
    takes: ClassVar[tuple[str, ...]] = ("node",)
    possible: ClassVar[tuple[Phase, ...]] = ()
    before_start: ClassVar[bool] = True

    def verdict(self, item: Any, scene: Scene) -> Fail:
        return Fail("", "ibv_reg_mr failed: Cannot allocate memory")


class NoSession(ItemFault, frozen=True, tag="no-session"):
    """Creating a session returns nothing, and no error either."""

    items: ClassVar[tuple[type, ...]] = (SessionItem,)
    takes: ClassVar[tuple[str, ...]] = ("node", "peer")
    possible: ClassVar[tuple[Phase, ...]] = ("allocated", "handshake")

    def verdict(self, item: Any, scene: Scene) -> Drop:
        return Drop()


class RegionInvalid(Fault, frozen=True, tag="region-invalid"):
    """The memory regions of an engine are gone: what uses them fails with a protection error."""

    possible: ClassVar[tuple[Phase, ...]] = (
        "allocated",
        "handshake",
        "read_posted",
        "read_in_flight",
        "read_done",
        "release",
        "decode",
    )

    def strike(self, scene: Scene) -> None:
        engine = scene.engine()
        devices = [
            device
            for device in scene.world.fabric.devices
            if device.process.owner == engine.name and device.alive
        ]
        if not sum(device.forget_regions() for device in devices):
            raise CannotStrike(f"{engine.name} has registered no memory")
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
