"""What shared code, numpy and torch draw during a run follows from the run's seed."""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sim.guest.entropy import chance_from_seed
from sim.kernel import Kernel, Node, Process, Seed


def _temporary_name() -> str:
    with tempfile.TemporaryDirectory() as directory:
        return Path(directory).name


DRAWS: dict[str, Callable[[], Any]] = {
    "random": random.random,
    "SystemRandom": lambda: random.SystemRandom().random(),
    "secrets": lambda: secrets.token_hex(8),
    "os.urandom": lambda: os.urandom(8),
    "uuid4": lambda: str(uuid.uuid4()),
    "numpy": lambda: float(np.random.rand()),
    "numpy's new generators": lambda: float(np.random.default_rng().random()),
    "torch": lambda: torch.rand(4).tolist(),
    "torch in place": lambda: torch.empty(4).normal_().tolist(),
    "temporary files": _temporary_name,
}


def drawn(seed: int, draw: Callable[[], Any]) -> list[Any]:
    """Three draws of a task, after one that the run's surroundings have made outside of it."""
    draw()
    got: list[Any] = []
    kernel = Kernel(Seed(seed))
    with chance_from_seed(kernel), kernel.running():
        process = Process(Node("p0", "10.0.0.1"), "core")
        kernel.spawn(process, lambda: got.extend(draw() for _ in range(3)), name="t")
        kernel.run()
    return got


@pytest.mark.parametrize("what", DRAWS)
def test_a_draw_follows_from_the_seed(what: str) -> None:
    """Equal in two runs of one seed, another for another seed, and never twice the same."""
    first, again, other = (drawn(seed, DRAWS[what]) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len({str(value) for value in first}) == 3


@pytest.mark.parametrize("what", ["random", "numpy", "torch", "torch in place"])
def test_generators_go_on_after_a_run_as_if_there_had_been_none(what: str) -> None:
    """A test, or whoever calls the library, keeps the chance that it has seeded."""
    draw = DRAWS[what]
    values = []
    for has_run in (False, True):
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)
        if has_run:
            drawn(1, lambda: None)
        values.append(draw())
    assert values[0] == values[1]


def test_after_a_run_the_operating_system_is_asked_again() -> None:
    """Nothing of a finished run is left in the modules."""
    before = os.urandom, random._urandom, tempfile._name_sequence  # type: ignore[attr-defined]
    drawn(1, DRAWS["secrets"])
    after = os.urandom, random._urandom, tempfile._name_sequence  # type: ignore[attr-defined]
    assert all(one is other for one, other in zip(before, after, strict=True))
