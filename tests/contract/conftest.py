from __future__ import annotations

from collections.abc import Iterator

import pytest
from zmq_arms import Arm, arm_named


@pytest.fixture(params=["real", "facade", "perturbed-facade"])
def arm(request: pytest.FixtureRequest) -> Iterator[Arm]:
    """What a zmq program runs on."""
    with arm_named(request.param) as arm:
        yield arm
