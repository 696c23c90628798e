"""What engines in processes run on, by the names of ``--arm``."""

from __future__ import annotations

from typing import NamedTuple

from hw_tests.process.messages import Device


class ProcessArm(NamedTuple):
    """The memory and the library of two engines.

    Args:
        device: where their caches are.
        stands_in: whether mori and the GPU are stood in for.
        features: ``held-reads``: reads can be kept under way until a test has done its part.
    """

    device: Device
    stands_in: bool
    features: frozenset[str]


PROCESS_ARMS = {
    "sim": ProcessArm("shared", stands_in=True, features=frozenset({"held-reads"})),
    "rocm": ProcessArm("cuda", stands_in=False, features=frozenset()),
}
