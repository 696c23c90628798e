"""Clients that go away."""

from __future__ import annotations

from typing import ClassVar

from faults.fault import Fault
from faults.scene import Scene


class Abort(Fault, frozen=True, tag="abort"):
    """The client of a request goes away, in whatever phase the request is."""

    takes: ClassVar[tuple[str, ...]] = ("request",)

    def strike(self, scene: Scene) -> None:
        request = scene.client_request()
        scene.hit([request])
        scene.bed.router.abort(request)
