"""Chance in code that is shared: what it draws during a run follows from the run's seed.

Guests have facades of ``random``, ``secrets``, ``uuid`` and ``os``. Shared modules, numpy and
torch draw from global generators and from the operating system. While a run lasts, the global
generators are seeded, and a task that asks the operating system for random bytes gets the run's;
``uuid.uuid4``, ``secrets``, ``numpy.random.default_rng()`` and the names of temporary files follow
from those. All processes of a run share them. A ``random.Random()`` or a ``torch.Generator`` that
shared code makes without a seed is not covered.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from sim.kernel import Kernel

_NAME_LENGTH = 8
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"


@contextmanager
def chance_from_seed(kernel: Kernel) -> Iterator[None]:
    """For the length of a run; everything is put back at its end."""
    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())
        stack.callback(torch.set_rng_state, torch.get_rng_state())
        seeds = kernel.seed.stream("shared/generators")
        random.seed(seeds.getrandbits(64))
        np.random.seed(seeds.getrandbits(32))
        torch.manual_seed(seeds.getrandbits(63))
        urandom = _urandom(kernel, os.urandom)
        for owner, name, value in (
            (os, "urandom", urandom),
            (random, "_urandom", urandom),  # for SystemRandom, on which secrets and numpy build
            (tempfile, "_name_sequence", _Names(kernel.seed.stream("shared/temporary files"))),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def _urandom(kernel: Kernel, real: Callable[[int], bytes]) -> Callable[[int], bytes]:
    entropy = kernel.seed.stream("shared/entropy")

    def urandom(size: int, /) -> bytes:
        return real(size) if kernel.current() is None else entropy.randbytes(size)

    return urandom


class _Names:
    """Names of temporary files, as tempfile's own sequence gives them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> str:
        return "".join(self._chance.choices(_NAME_CHARACTERS, k=_NAME_LENGTH))
