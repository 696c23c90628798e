"""Messages and transfer parameters that are wrong in ways drawn from a seed.

Each begins as a right one, since what is wrong altogether does not get far.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from connector import wire
from connector.core.offer import EXTENSION_KEY, HoldId

BATCH = 200
"""Inputs of one seed; fewer than a socket's queue holds."""
INCARNATION = "now"
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 64, 65, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 0.0, 1.0, 0.5,
    -1e300, float("inf"), float("nan"), "", "0", "1" * 30, "attn", INCARNATION, "t1", "\x00",
    "é" * 40, "release", EXTENSION_KEY, [], [[]], [0], [1, 1], [-1], [[1], [2]], [2**63], ["1"],
    [None], {}, {"a": 1}, {"0": [1]}, {"type": "release"},
)  # fmt: skip
METADATA: dict[str, Any] = {
    "engine_id": "p0",
    "agent_metadata": b"engine",
    "kv_caches_base_addr": [4096],
    "num_blocks": 8,
    "block_len": 1,
    "attn_backend_name": "A",
    "kv_head_layouts": {"attn": [1, 2, 3, 4, 5, 6]},
}
FINGERPRINT: dict[str, Any] = {"layers": {"attn": {"size": 1}}, "tp_size": 1}


def give(check: Callable[[int], None], seeds: int) -> None:
    """Check so many seeds, the same ones each time."""

    @settings(max_examples=seeds)
    @given(seed=st.integers(0, 2**64 - 1))
    def each(seed: int) -> None:
        check(seed)

    each()


@contextmanager
def quiet() -> Iterator[None]:
    """Thousands of refusals are not written to the log; they are to the flight recorder."""
    logger = logging.getLogger("vllm.hybrid_read")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


class OddInput:
    """All that one seed gives.

    Args:
        seed: of the generator.
        num_holds: that messages name, numbered from 1.
    """

    def __init__(self, seed: int, num_holds: int = 3) -> None:
        self._rng = random.Random(seed)
        self._num_holds = num_holds

    def frames(self) -> list[bytes]:
        """What may arrive on a producer rank's ports."""
        kinds = (self._question, self._renewal, self._release, self._greeting, self._answer)
        frames = [self.spoilt(self._rng.choice(kinds)())]
        while self._rng.random() < 0.05:
            frames.insert(0, self._rng.choice((b"", frames[0], b"x")))
        return frames

    def answer(self) -> list[bytes]:
        """What may arrive in answer to a question."""
        return [*([b""] * self._rng.randrange(3)), self.spoilt(self._answer())]

    def welcome(self) -> list[bytes]:
        """The frames of a handshake's answer."""
        descriptors: Any = {"attn": [b"memory"]}
        is_alike = self._rng.random() < 0.7
        fingerprint = FINGERPRINT if is_alike else self.changed(FINGERPRINT)
        first, second = wire.encode_welcome(
            METADATA, descriptors, INCARNATION, fingerprint, wire.RankPlace(0, 1)
        )
        chosen = self._rng.random()
        if chosen < 0.6:
            first = self.spoilt(first)
        if chosen > 0.5:
            second = self.spoilt(second)
        return [first, second]

    def spoilt(self, message: bytes) -> bytes:
        """Often in its fields, sometimes in its bytes, sometimes not at all."""
        chosen = self._rng.random()
        if chosen < 0.3:
            return message
        if chosen < 0.7:
            try:
                fields = msgspec.msgpack.decode(message)
                return msgspec.msgpack.encode(self.changed(fields))
            except (msgspec.MsgspecError, OverflowError):
                return message[1:]
        if chosen < 0.8:
            return self._rng.randbytes(self._rng.randrange(40))
        if chosen < 0.81:
            return self._rng.choice((b"\x91", b"\x81\xa4type")) * self._rng.randrange(3000)
        at = self._rng.randrange(len(message))
        ways: tuple[Callable[[], bytes], ...] = (
            lambda: message[:at],
            lambda: message + message,
            lambda: message[:at] + self._rng.randbytes(1) + message[at + 1 :],
        )
        return self._rng.choice(ways)()

    def changed(self, fields: Any) -> Any:
        """One to three of the values, on any level, left out, replaced, or put under other keys."""
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            fields = self._changed_once(fields)
        return fields

    def _changed_once(self, value: Any) -> Any:
        goes_on = isinstance(value, dict | list) and value and self._rng.random() < 0.9
        if not goes_on:
            return self._rng.choice(ODD)
        if isinstance(value, list):
            at = self._rng.randrange(len(value))
            ways = ([*value[:at], *value[at + 1 :]], [*value, value[at]])
            instead = [*value[:at], self._changed_once(value[at]), *value[at + 1 :]]
            return self._rng.choice((*ways, instead, instead))
        key = self._rng.choice(sorted(value, key=str))
        rest = {name: inner for name, inner in value.items() if name != key}
        chosen = self._rng.random()
        if chosen < 0.15:
            return rest
        if chosen < 0.25:
            return {**rest, str(self._rng.choice(ODD)): value[key]}
        return {**value, key: self._changed_once(value[key])}

    # ---------------------------------------------------------------- right ones

    def _hold(self) -> HoldId:
        return HoldId(
            self._rng.choice((INCARNATION, INCARNATION, "before")),
            self._rng.randrange(self._num_holds + 2),
        )

    def _question(self) -> bytes:
        blocks = (("attn", (1, 2)),) if self._rng.random() < 0.3 else ()
        number = self._rng.randrange(100)
        return wire.encode_question(wire.Question(self._hold(), number, blocks))

    def _renewal(self) -> bytes:
        hold = self._hold()
        return wire.encode_renewal(hold.incarnation, [hold.number, self._hold().number])

    def _release(self) -> bytes:
        hold = self._hold() if self._rng.random() < 0.7 else None
        transfer_id, readers = f"t{self._hold().number}", self._rng.choice((1, 1, 2, 8))
        if hold is None and self._rng.random() < 0.3:
            return transfer_id.encode()
        return wire.encode_release(wire.Release(transfer_id, readers, hold, 0))

    def _greeting(self) -> bytes:
        return wire.GET_META

    def _answer(self) -> bytes:
        digests = (1, 2) if self._rng.random() < 0.3 else ()
        number, is_held = self._rng.randrange(5), self._rng.random() < 0.5
        return wire.encode_answer(wire.Answer(number, is_held, digests))
