"""The same loop in virtual time, on a fabric of one's choice: to measure it, and to predict."""

from __future__ import annotations

from collections.abc import Sequence

from hw_tests.arms.sim import SimArm, run_on_sim
from hw_tests.calibration.measure import Loop, Runner, in_groups, measure
from hw_tests.calibration.rows import Shape
from sim.fabric import FabricProfile


def run_on(profile: FabricProfile) -> Runner:
    """Runs the loop on the simulated library."""

    def run(shapes: Sequence[Shape], loop: Loop) -> list[float]:
        found: list[float] = []

        def check(arm: SimArm) -> None:
            found.extend(measure(arm, shapes, loop))

        run_on_sim(check, profile=profile)
        return found

    return run


def predict(profile: FabricProfile, shapes: Sequence[Shape]) -> list[float]:
    """Latencies in microseconds; RDMA from host memory, XGMI from that of GPUs."""
    found = dict.fromkeys(shapes, 0.0)
    for backend, memory in (("rdma", "cpu"), ("xgmi", "gpu")):
        chosen = [shape for shape in found if shape.backend == backend]
        latencies = in_groups(chosen, Loop(memory=memory, iterations=1), run_on(profile))
        found.update(zip(chosen, latencies, strict=True))
    return [found[shape] for shape in shapes]
