"""Clients that go away."""

from __future__ import annotations

from typing import ClassVar

from faults.fault import Fault
from faults.scene import Scene
from sim.lifecycle import PHASES, Phase


class Abort(Fault, frozen=True, tag="abort"):
    """The client of a request goes away, in whatever phase the request is."""

    takes: ClassVar[tuple[str, ...]] = ("request",)
    possible: ClassVar[tuple[Phase, ...]] = tuple(p for p in PHASES if p != "finished")

    def strike(self, scene: Scene) -> None:
        request = scene.client_request()
        scene.hit([request])
        scene.bed.router.abort(request)
