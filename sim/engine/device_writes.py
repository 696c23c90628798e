"""What a GPU still writes for requests whose tokens it has sampled: drafter rows, copied states."""

from __future__ import annotations

from dataclasses import dataclass

from sim.errors import TestbedError
from sim.verdict import Delay, Deliver, VerdictChain


@dataclass(frozen=True, slots=True)
class DeviceWrite:
    """An operation that is about to be launched behind the sampling. Honours Deliver and Delay.

    Args:
        engine: name of the engine.
        rank: whose device it is.
        operation: name of the operation.
        legs: ids of the requests in the batch, without addresses.
    """

    engine: str
    rank: int
    operation: str
    legs: tuple[str, ...]


def delay_ns(verdicts: VerdictChain, write: DeviceWrite) -> int:
    """How much longer than usual ``write`` takes, by the rules."""
    match verdicts.ask(write):
        case Deliver():
            return 0
        case Delay(by_ns=by_ns):
            return by_ns
        case verdict:
            raise TestbedError(f"a write of a device cannot honour the verdict {verdict!r}")
