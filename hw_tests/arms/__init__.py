"""The implementations of ``mori.io`` on which a test can run, by the names of ``--arm``.

``sim``: the simulated library, in virtual time. ``mori-cpu``: the released library in a process of
its own, over a scripted verbs provider, without GPU. ``rocm``: the same with two GPUs and a real
NIC, unverified on hardware until somebody has run it there. Each runs a case and tells what it
cannot.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hw_tests.child import SOURCES, ChildFailed, run_to_end
from hw_tests.preflight import Finding, Host, examine

if TYPE_CHECKING:
    from hw_tests.conformance.arm import (
        Case,
    )  # loads torch, which a run on other hosts need not have

_MORI_CPU_FEATURES = frozenset(
    {
        *("counts", "completions", "posts", "events", "processes", "control-plane"),
        *("no-device", "operating-system", "transport", "attributes"),
    }
)
_ROCM_FEATURES = frozenset(
    {"xgmi", "gpu-rdma", "processes", "control-plane", "operating-system", "transport"}
)
_LONGEST_CASE_S = 120


class Arm(NamedTuple):
    """An implementation that can be asked for.

    Args:
        features: what it can do, in the words of ``Case.needs``.
        run: runs a case; raises what the case raises, or ChildFailed.
        unavailable: why it cannot be used on this machine; None if it can.
    """

    features: frozenset[str]
    run: Callable[[Case], None]
    unavailable: Callable[[], str | None]


def _sim() -> Arm:
    from hw_tests.arms.sim import SimArm, run_on_sim  # noqa: PLC0415  # loads torch

    return Arm(SimArm.features, lambda case: run_on_sim(case.check), lambda: None)


def _mori_cpu() -> Arm:
    from hw_tests.arms.mori_cpu.build import Unavailable, prepare  # noqa: PLC0415

    def unavailable() -> str | None:
        try:
            prepare()
        except Unavailable as error:
            return str(error)
        return None

    def run(case: Case) -> None:
        prepared = prepare()
        run_beside("mori-cpu", case, prepared.python, prepared.environment)

    return Arm(_MORI_CPU_FEATURES, run, unavailable)


def _rocm() -> Arm:
    def unavailable() -> str | None:
        if not (missing := [finding.name for finding in preflight() if not finding.ok]):
            return None
        return f"preflight failed: {', '.join(missing)} (remedies: faultlab doctor --hardware)"

    def run(case: Case) -> None:
        run_beside("rocm", case, Path(sys.executable), os.environ)

    return Arm(_ROCM_FEATURES, run, unavailable)


@functools.cache
def _this_machine() -> Host:
    return Host()


def preflight(peers: Sequence[str] = ()) -> list[Finding]:
    """What this machine has and lacks for ``rocm``; what is slow to ask is asked once."""
    return examine(_this_machine(), peers)


def run_beside(arm: str, case: Case, python: Path, environment: Mapping[str, str]) -> None:
    """Run ``case`` in a process of its own, which the library may end or leave busy.

    Raises:
        ChildFailed: it failed, or its process ended before the end of the case.
    """
    words = [str(python), "-m", "hw_tests.arms.run_case", arm, case.name]
    said = run_to_end(words, _LONGEST_CASE_S, environment, folder=SOURCES)
    if case.name not in said.splitlines():
        raise ChildFailed(f"{case.name}: exit code 0 before its end\n{said[-3000:]}")


ARMS: dict[str, Callable[[], Arm]] = {"sim": _sim, "mori-cpu": _mori_cpu, "rocm": _rocm}
