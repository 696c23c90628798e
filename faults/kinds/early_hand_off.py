"""A router that does not wait for the producer."""

from __future__ import annotations

from typing import ClassVar

from faults.fault import CannotStrike, Fault
from faults.scene import Scene


class EarlyHandOff(Fault, frozen=True, tag="early-hand-off"):
    """The consumer is told of a request before its producer has finished.

    It gets what a router knows of the producer, as routers for MoRIIO's WRITE mode tell it: an
    address and the transfer id, and no blocks. What the producer returns later is not passed on.
    Where a producer writes, every request is told so early.
    """

    takes: ClassVar[tuple[str, ...]] = ("request",)

    def strike(self, scene: Scene) -> None:
        request, router = scene.client_request(), scene.bed.router
        if router.in_pairs:
            raise CannotStrike(
                "producers write, so every consumer is told before they have finished"
            )
        if any(engine.connector is None for engine in scene.bed.engines):
            raise CannotStrike("there is no producer")
        phases = scene.lifecycle.phases_of(request)
        if router.is_at_a_consumer(request) or not {"queued_at_p", "prefill"}.issuperset(phases):
            raise CannotStrike(f"{request} has been prefilled, or a consumer knows of it")
        scene.hit([request])
        router.hand_off_early(request)
