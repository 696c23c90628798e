"""How long a request takes on a fabric, from the fabric's numbers alone.

A call of B messages on Q queue pairs keeps its caller for

    item B + call + prepare B + post min(Q, B) + work_request B + notify Q

and a chain is on its way as soon as it is posted. One of n messages needs the longer of its bytes
over the rate and ``n nic_work_request`` of its NIC, which chains of several queue pairs share
equally; those of one queue pair go one after the other, and land and complete in that order. It is
what `sim.fabric` does for one initiator, without the simulator, as a fit asks it thousands of
times. The same in words, and where the numbers come from, is in docs/fabrics.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hw_tests.calibration.rows import Shape
from sim.fabric import FabricProfile

TIMES: Final = (
    *("item_ns", "call_ns", "post_ns", "notify_ns", "work_request_ns", "nic_work_request_ns"),
    *("write_prepare_ns", "write_landing_ns", "write_completion_ns"),
    *("read_prepare_ns", "read_landing_ns", "read_completion_ns"),
)
RATES: Final = ("nic_bytes_per_ns", "read_bytes_per_ns", "queue_pair_bytes_per_ns")
Numbers = Mapping[str, float]
"""Of a fabric: its times as they are; of its rates, the time that a byte takes."""


def numbers_of(profile: FabricProfile) -> dict[str, float]:
    """What a latency depends on."""
    times = {name: float(getattr(profile, name)) for name in TIMES}
    return times | {name: 1 / getattr(profile, name) for name in RATES}


def profile_of(name: str, numbers: Numbers, base: FabricProfile) -> FabricProfile:
    """A fabric with these numbers; what no latency depends on is that of ``base``."""
    times = {key: round(numbers[key]) for key in TIMES}
    rates = {key: round(1 / numbers[key], 4) for key in RATES}
    for key in RATES[1:]:
        rates[key] = min(rates[key], rates["nic_bytes_per_ns"])
    return msgspec.structs.replace(base, name=name, **times, **rates)


def latency_ns(numbers: Numbers, shape: Shape) -> float:
    """From the first call to the end of the wait for all."""
    slowest = max(1.0, numbers["queue_pair_bytes_per_ns"] / numbers["nic_bytes_per_ns"])
    ends = _on_the_wire(_chains(numbers, shape), slowest)
    landed, completed = [0.0] * shape.qps, [0.0] * shape.qps
    last = 0.0
    for ended, chain in ends:
        kind = "read" if chain.inwards else "write"
        at = chain.queue_pair
        landed[at] = max(landed[at], ended + numbers[f"{kind}_landing_ns"])
        completed[at] = max(completed[at], landed[at] + numbers[f"{kind}_completion_ns"])
        if not chain.is_notification:
            last = max(last, completed[at])
    return last


class _Chain(NamedTuple):
    """``work_ns`` is what it needs of a NIC that does nothing else."""

    posted_ns: float
    queue_pair: int
    work_ns: float
    inwards: bool
    is_notification: bool = False


def _chains(numbers: Numbers, shape: Shape) -> list[_Chain]:
    """In the order in which they are posted."""
    is_read = shape.op == "read"
    byte_ns = numbers["read_bytes_per_ns" if is_read else "nic_bytes_per_ns"]
    each_ns = numbers["item_ns"] + numbers[f"{shape.op}_prepare_ns"]
    nic_ns = numbers["nic_work_request_ns"]
    longest = -(-shape.batch // shape.qps)
    now, chains = 0.0, []
    for call in range(shape.calls):
        now += shape.batch * each_ns + numbers["call_ns"]
        for number, begin in enumerate(range(0, shape.batch, longest)):
            messages = min(longest, shape.batch - begin)
            now += numbers["post_ns"] + messages * numbers["work_request_ns"]
            work_ns = messages * max(shape.message_bytes * byte_ns, nic_ns)
            chains.append(_Chain(now, (call + number) % shape.qps, work_ns, is_read))
        for queue_pair in range(shape.qps):
            now += numbers["notify_ns"]
            chains.append(_Chain(now, queue_pair, nic_ns, False, True))
    return chains


def _on_the_wire(chains: Sequence[_Chain], slowest: float) -> Iterator[tuple[float, _Chain]]:
    """When each chain leaves the wire, in that order; reads go the other way and share nothing with
    notifications. ``slowest``: how much slower one queue pair is than the NIC."""
    waiting: dict[int, deque[_Chain]] = {chain.queue_pair: deque() for chain in chains}
    left: dict[int, float] = {}
    now, arrived = 0.0, 0
    while left or arrived < len(chains):
        inwards = sum(waiting[at][0].inwards for at in left)
        shares = {True: max(inwards, slowest), False: max(len(left) - inwards, slowest)}
        ends = [(work * shares[waiting[at][0].inwards], at) for at, work in left.items()]
        ending, first = min(ends, default=(math.inf, -1))
        until = chains[arrived].posted_ns - now if arrived < len(chains) else math.inf
        passed = min(ending, until)
        for at in left:
            left[at] -= passed / shares[waiting[at][0].inwards]
        now += passed
        if ending <= until:
            yield now, waiting[first].popleft()
            del left[first]
            if waiting[first]:
                left[first] = waiting[first][0].work_ns
        else:
            chain = chains[arrived]
            arrived += 1
            waiting[chain.queue_pair].append(chain)
            left.setdefault(chain.queue_pair, chain.work_ns)
