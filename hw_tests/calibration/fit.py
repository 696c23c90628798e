"""A fabric's numbers from a table of latencies: least squares of the relative errors.

A latency is nearly the largest of some sums of the numbers (`model`), linear as long as the same
sum is the largest, so Gauss and Newton's steps end after a few. They are taken only where the rows
decide, by the singular values of the matrix of slopes: what no row tells apart stays as near as
possible to the fabric that one begins with. `Fit.undetermined` names that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from hw_tests.calibration.model import (
    RATES,
    TIMES,
    latency_ns,
    numbers_of,
    profile_of,
)
from hw_tests.calibration.rows import Row
from sim.fabric import FabricProfile

_NAMES: Final = (*TIMES, *RATES)
_STEPS, _HALVINGS = 60, 8
_LITTLE = 1e-2
"""A step that makes this much less of the error is the last."""
_WIDE, _NARROW = 0.1, 1e-4
"""Over which slopes are taken: a wide one looks beyond where another sum is the largest."""
_SMALLEST_NS = 50.0
"""What counts as a change of a time that is 0 so far."""
_COARSE, _FINE, _NOISE = 0.05, 1e-3, 5.0
"""Singular values below a threshold are not acted on: a direction counts if a change as large as
the number itself moves the rows by `_NOISE` times what is left unexplained, within these bounds."""
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """What a table says about a fabric.

    Args:
        profile: the fabric.
        num_rows: that it was fitted to.
        rms, worst: relative errors of the closed form over the rows, before rounding.
        undetermined: by name of a number, with which others the rows cannot tell it apart; they
            stay near what they were. Empty: no row depends on it.
    """

    profile: FabricProfile
    num_rows: int
    rms: float
    worst: float
    undetermined: dict[str, list[str]]


def fit(rows: Sequence[Row], base: FabricProfile, name: str) -> Fit:
    """The fabric that ``rows`` describe, begun with ``base``.

    Raises:
        ValueError: no row is over RDMA with one initiator at a time.
    """
    usable = [row for row in rows if row.shape.backend == "rdma" and row.devices == 1]
    if not usable:
        raise ValueError(
            f"none of {len(rows)} rows can be fitted; expected rows of backend rdma, measured by "
            "one initiator at a time"
        )
    problem = _Problem(usable, base)
    values = problem.descend(problem.start, _COARSE, _WIDE)
    threshold = float(np.clip(_NOISE * problem.rms(values), _FINE, _COARSE))
    values = problem.descend(values, threshold, _NARROW)
    errors = problem.errors(values)
    return Fit(
        profile_of(name, problem.numbers(values), base),
        len(usable),
        problem.rms(values),
        float(np.abs(errors).max()),
        _undetermined(problem.slopes(values, _NARROW), threshold),
    )


class _Problem:
    """Values are numbers in units of what they are at first; all are 0 or more."""

    def __init__(self, rows: Sequence[Row], base: FabricProfile) -> None:
        self._rows = rows
        begun = {**numbers_of(base), **_rates(rows, base)}
        self._units = np.array([max(begun[name], _least(name)) for name in _NAMES])
        self._floor = np.array([1e-3 if name in RATES else 0.0 for name in _NAMES])
        self.start: Array = np.ones(len(_NAMES))

    def numbers(self, values: Array) -> dict[str, float]:
        return dict(zip(_NAMES, (values * self._units).tolist(), strict=True))

    def errors(self, values: Array) -> Array:
        """Predicted over measured latency, less one, by row."""
        numbers = self.numbers(values)
        rows = self._rows
        return np.array(
            [latency_ns(numbers, row.shape) / (row.latency_us * 1e3) - 1 for row in rows]
        )

    def rms(self, values: Array) -> float:
        return float(np.sqrt(np.mean(self.errors(values) ** 2)))

    def slopes(self, values: Array, width: float) -> Array:
        """Of the errors (rows) in each value (columns)."""
        here = self.errors(values)
        columns = []
        for index in range(len(values)):
            moved = values.copy()
            moved[index] += width
            columns.append((self.errors(moved) - here) / width)
        return np.column_stack(columns)

    def descend(self, values: Array, threshold: float, width: float) -> Array:
        """Step until nothing gets better."""
        best = self.rms(values)
        for _step in range(_STEPS):
            step = self._step(values, threshold, width)
            for halving in range(_HALVINGS):
                tried = np.maximum(values + step / 2**halving, self._floor)
                if (found := self.rms(tried)) < best:
                    break
            else:
                return values
            done = best - found < _LITTLE * best
            values, best = tried, found
            if done:
                return values
        return values

    def _step(self, values: Array, threshold: float, width: float) -> Array:
        """Gauss and Newton's; what would leave its bounds stops there, and others make up."""
        slopes, errors = self.slopes(values, width), self.errors(values)
        step, free = np.zeros_like(values), np.ones(len(values), bool)
        while free.any():
            left = errors + slopes[:, ~free] @ step[~free]
            step[free] = -_pseudo_inverse(slopes[:, free], threshold) @ left
            low = free & (values + step < self._floor)
            if not low.any():
                break
            step[low] = (self._floor - values)[low]
            free &= ~low
        return step


def _rates(rows: Sequence[Row], base: FabricProfile) -> dict[str, float]:
    """The time of a byte at the best rates that were seen, to begin with."""
    begun = numbers_of(base)
    of_op = {
        op: min(
            (row.latency_us * 1e3 / row.shape.payload for row in rows if row.shape.op == op),
            default=None,
        )
        for op in ("write", "read")
    }
    writes = of_op["write"] or of_op["read"] or begun["nic_bytes_per_ns"]
    reads = of_op["read"] or writes
    lone = [
        row.latency_us * 1e3 / row.shape.payload
        / ((reads if row.shape.op == "read" else writes) / writes)
        for row in rows if row.shape.qps == 1
    ]  # fmt: skip
    return {
        "nic_bytes_per_ns": writes,
        "read_bytes_per_ns": reads,
        "queue_pair_bytes_per_ns": min(lone, default=writes),
    }


def _least(name: str) -> float:
    return 0.0 if name in RATES else _SMALLEST_NS


def _pseudo_inverse(slopes: Array, threshold: float) -> Array:
    left, sizes, right = np.linalg.svd(slopes, full_matrices=False)
    kept = sizes > threshold
    return (right[kept].T / sizes[kept]) @ left[:, kept].T  # type: ignore[no-any-return]


def _undetermined(slopes: Array, threshold: float) -> dict[str, list[str]]:
    """Those that have a part in a direction that the rows do not decide."""
    _left, sizes, right = np.linalg.svd(slopes, full_matrices=True)
    kept = right[: len(sizes)][sizes > threshold]
    unseen = np.eye(len(_NAMES)) - kept.T @ kept
    found = {}
    for index, name in enumerate(_NAMES):
        if unseen[index, index] > 0.05:
            with_it = [
                other for at, other in enumerate(_NAMES)
                if at != index and abs(unseen[index, at]) > 0.05
            ]  # fmt: skip
            found[name] = with_it
    return found
