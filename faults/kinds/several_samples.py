"""Clients that want several answers to one prompt."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from faults.fault import CannotStrike, Fault
from faults.scene import Scene
from sim.lifecycle import Phase

_BEFORE_HAND_OFF: tuple[Phase, ...] = ("queued_at_p", "prefill", "handoff")


class SeveralSamples(Fault, frozen=True, tag="several-samples"):
    """The client of a request asks for ``samples`` of it (n > 1), after one prefill.

    As many decode legs begin on the same consumer, at once or ``apart_ms`` after one another, all
    with the same parameters. The answer is there when all have ended, and fails with the first that
    does.
    """

    samples: Literal[2, 3, 4] = 2
    apart_ms: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0

    takes: ClassVar[tuple[str, ...]] = ("request",)

    def strike(self, scene: Scene) -> None:
        request = scene.client_request()
        router, phases = scene.bed.router, scene.lifecycle.phases_of(request)
        if router.is_at_a_consumer(request) or not set(_BEFORE_HAND_OFF).issuperset(phases):
            raise CannotStrike(f"{request} has been handed off, for one sample")
        scene.hit([request])
        router.ask_for(request, self.samples, self.apart_ms / 1000)
