"""Engines that stop for a while, or are slow."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from faults.fault import Heal, LastingFault
from faults.scene import Scene


class Pause(LastingFault, frozen=True, tag="pause"):
    """All processes of an engine stand still, as under a debugger; its hardware goes on.

    One that stands still for five minutes may end by itself as it goes on: so long does vLLM wait
    for the answer of a rank (`VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS`).
    """

    for_s: float | None = 5.0

    longest_s: ClassVar[float | None] = 130.0

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        what = ("pause", engine.name, engine.incarnation)
        overlaps = scene.overlaps
        if overlaps.begin(what):
            engine.pause()

        def heal() -> None:
            if overlaps.end(what) and engine.alive:
                engine.resume()

        return heal


class SlowSteps(LastingFault, frozen=True, tag="slow-steps"):
    """Every step of an engine takes ``factor`` as long; of several the latest counts."""

    factor: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 20.0

    def strike(self, scene: Scene) -> Heal:
        engine = scene.engine()
        scene.hit(scene.lifecycle.requests_on(engine.name), node=engine.name)
        what = ("pace", engine.name, engine.incarnation)
        overlaps = scene.overlaps
        overlaps.begin(what)
        engine.set_pace(self.factor)

        def heal() -> None:
            if overlaps.end(what) and engine.incarnation == what[2]:
                engine.set_pace(1.0)

        return heal
