"""The timed loop, for any arm, and the processes in which it runs.

As in the published benchmark, notifications are on, a request is waited for before the next one
begins, and no message is next to another. Messages take turns in a ring of places, as many as fit
into the memory that is allowed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hw_tests.calibration.rows import Shape
from hw_tests.child import SOURCES, run_to_end

_GAP = 64
_PATIENCE_S = 900


class Loop(NamedTuple):
    """How the shapes of one process are timed.

    Args:
        memory: "cpu" or "gpu".
        ring_bytes: of memory that messages take turns in; one message may be longer.
        warm_up, iterations: requests before, and of, the average.
    """

    memory: str = "cpu"
    ring_bytes: int = 1 << 22
    warm_up: int = 1
    iterations: int = 2


def measure(arm: Any, shapes: Sequence[Shape], loop: Loop) -> list[float]:
    """Average latencies, in microseconds, of shapes that have backend and queue pairs in common."""
    backend, qps = shapes[0].backend, shapes[0].qps
    size = max(len(places) * _stride(shape) for shape in shapes for places in [_ring(shape, loop)])
    config = {"qp_per_transfer": qps, "enable_notification": 1}
    if loop.memory == "gpu":
        pair = arm.gpu_pair(size, backends=(backend.upper(),), rdma=config)
    else:
        pair = arm.pair(size, **config)
    session = pair.session()
    return [_timed(arm, pair, session, shape, loop) for shape in shapes]


def _timed(arm: Any, pair: Any, session: Any, shape: Shape, loop: Loop) -> float:
    transfer = getattr(session, f"batch_{shape.op}")
    ring = _ring(shape, loop)
    offsets = [ring[number % len(ring)] for number in range(shape.batch)]
    sizes = [shape.message_bytes] * shape.batch
    total = 0.0
    for number in range(loop.warm_up + loop.iterations):
        uids = [session.allocate_transfer_uid() for _ in range(shape.calls)]
        began = arm.seconds()
        statuses = [transfer(offsets, offsets, sizes, uid) for uid in uids]
        for status in statuses:
            status.Wait()
        took = arm.seconds() - began
        for status in statuses:
            assert status.Succeeded(), f"{shape}: {status.Message()}"
        total += took if number >= loop.warm_up else 0.0
    return total / loop.iterations * 1e6


def _stride(shape: Shape) -> int:
    return -(-shape.message_bytes // _GAP) * _GAP + _GAP


def _ring(shape: Shape, loop: Loop) -> list[int]:
    stride = _stride(shape)
    return [place * stride for place in range(max(1, min(shape.batch, loop.ring_bytes // stride)))]


Runner = Callable[[Sequence[Shape], Loop], "list[float]"]


def in_groups(shapes: Sequence[Shape], loop: Loop, run: Runner) -> list[float]:
    """Latencies of all ``shapes``, in their order; ``run`` gets those with the same engines."""
    groups: dict[tuple[str, int], list[int]] = {}
    for index, shape in enumerate(shapes):
        groups.setdefault((shape.backend, shape.qps), []).append(index)
    found = [0.0] * len(shapes)
    for indices in groups.values():
        latencies = run([shapes[index] for index in indices], loop)
        for index, latency in zip(indices, latencies, strict=True):
            found[index] = latency
    return found


def run_on_real(arm: str) -> Runner:
    """Runs on the real library, in a process for each group: every engine keeps a core busy.

    Raises:
        ChildFailed: from the runner.
    """
    from hw_tests.arms.mori_cpu.build import prepare  # noqa: PLC0415  # not for that process

    if arm == "mori-cpu":
        prepared = prepare()
        python, environment = prepared.python, dict(prepared.environment)
    else:
        python, environment = Path(sys.executable), dict(os.environ)

    def run(shapes: Sequence[Shape], loop: Loop) -> list[float]:
        asked = json.dumps([loop, [dataclasses.asdict(shape) for shape in shapes]])
        command = [str(python), "-m", "hw_tests.calibration.measure", arm]
        said = run_to_end(command, _PATIENCE_S, environment, asked, SOURCES)
        return [float(latency) for latency in json.loads(said.splitlines()[-1])]

    return run


def main(arm_name: str) -> None:
    """In the process of its own: shapes from stdin, latencies to stdout."""
    from hw_tests.arms.run_case import make_arm  # noqa: PLC0415  # loads the library

    loop, shapes = json.loads(sys.stdin.read())
    found = measure(make_arm(arm_name), [Shape(**shape) for shape in shapes], Loop(*loop))
    print(json.dumps(found), flush=True)
    os._exit(0)  # engines are not torn down, which is not what is measured


if __name__ == "__main__":
    main(*sys.argv[1:])
