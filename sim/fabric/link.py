"""Bandwidth: flows between NICs share it max-min fairly, as time goes by.

A flow is one chain of work requests on its way. The network between the NICs is taken to be
wide enough, so only the two NICs limit it, and a ceiling of its own. When a flow comes or goes,
the rates of those that share a NIC with it, directly or through others, are computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sim.fabric.nic import Direction
from sim.kernel import Kernel

_ROUNDING = 1e-6  # of a nanosecond: what floating point adds to an exact quotient


class Flow:
    """``remaining`` bytes from one NIC to another; ``done`` is called when none is left."""

    __slots__ = ("ceiling", "done", "path", "rate", "remaining", "since_ns", "size", "version")

    def __init__(
        self, size: float, path: tuple[Direction, ...], ceiling: float, done: Callable[[], None]
    ) -> None:
        self.size = size
        self.remaining = size
        self.path = path
        self.ceiling = ceiling
        self.done = done
        self.rate = 0.0
        self.since_ns = 0
        self.version = 0

    @property
    def progress(self) -> float:
        """The part of its bytes that is through, as of the last change of its rate or its stop."""
        return 1.0 - self.remaining / self.size if self.size else 0.0

    def advance(self, now_ns: int) -> None:
        """Account for what went through since the last change."""
        self.remaining = max(0.0, self.remaining - self.rate * (now_ns - self.since_ns))
        self.since_ns = now_ns


class Links:
    """All flows of a fabric."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def start(self, flow: Flow) -> None:
        """Put ``flow`` on the wire."""
        flow.since_ns = self._kernel.now_ns
        for direction in flow.path:
            direction.flows.append(flow)
        self._share(flow.path)

    def stop(self, flow: Flow) -> None:
        """Take ``flow`` off the wire, finished or not; ``done`` is not called any more."""
        flow.version += 1
        flow.advance(self._kernel.now_ns)
        for direction in flow.path:
            direction.flows.remove(flow)
        self._share(flow.path)

    def speed_changed(self, *directions: Direction) -> None:
        """The capacity of ``directions`` is another one from now on."""
        self._share(directions)

    def _share(self, directions: Sequence[Direction]) -> None:
        flows = connected(directions)
        for flow, rate in zip(flows, max_min_rates(flows), strict=True):
            if rate != flow.rate or not flow.version:
                self._set_rate(flow, rate)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        flow.advance(self._kernel.now_ns)
        flow.rate = rate
        flow.version += 1
        if rate > 0:
            left_ns = max(0, math.ceil(flow.remaining / rate - _ROUNDING))
            self._kernel.call_later(left_ns, self._finished, flow, flow.version)

    def _finished(self, flow: Flow, version: int) -> None:
        if version == flow.version:
            self.stop(flow)
            flow.done()


def connected(directions: Sequence[Direction]) -> list[Flow]:
    """Every flow whose rate can depend on ``directions``, in an order that is reproducible."""
    found: dict[Flow, None] = {}
    seen: dict[Direction, None] = {}
    pending = list(directions)
    while pending:
        direction = pending.pop()
        if direction in seen:
            continue
        seen[direction] = None
        for flow in direction.flows:
            if flow not in found:
                found[flow] = None
                pending.extend(flow.path)
    return list(found)


def max_min_rates(flows: Sequence[Flow]) -> list[float]:
    """The max-min fair rate of each flow: nobody can get more without a poorer one losing.

    Progressive filling: the scarcest direction gives each of its flows the same share, which is
    theirs for good; what they leave over in other directions is for the rest.
    """
    if len(flows) == 1:
        (flow,) = flows
        return [min(flow.ceiling, *(d.bytes_per_ns for d in flow.path))]
    left = {d: d.bytes_per_ns for flow in flows for d in flow.path}
    rates: dict[Flow, float] = {}
    while len(rates) < len(flows):
        unset = [flow for flow in flows if flow not in rates]
        users = {d: sum(d in flow.path for flow in unset) for d in left}
        share, scarcest = min(
            ((left[d] / users[d], n) for n, d in enumerate(left) if users[d]), default=(0.0, 0)
        )
        ceiling = min(flow.ceiling for flow in unset)
        limit = list(left)[scarcest]
        for flow in unset:
            if flow.ceiling == ceiling if ceiling < share else limit in flow.path:
                rates[flow] = min(ceiling, share)
                for d in flow.path:
                    left[d] -= rates[flow]
    return [rates[flow] for flow in flows]
