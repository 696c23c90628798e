"""The root of chance in a run, and its named branches.

Every consumer of randomness draws from its own stream, so a new consumer does not shift the
draws of the others and old artifacts keep replaying.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Seed:
    """One integer from which every random decision of a run follows."""

    value: int

    def stream(self, name: str) -> random.Random:
        """A generator that depends on the seed and on ``name`` only."""
        digest = hashlib.blake2b(f"{self.value}/{name}".encode(), digest_size=16).digest()
        return random.Random(int.from_bytes(digest, "big"))
