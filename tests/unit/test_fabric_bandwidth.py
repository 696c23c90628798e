from __future__ import annotations

from functools import partial
from itertools import permutations

import pytest
from fabric_world import FabricWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sim.fabric.link import Flow, max_min_rates
from sim.fabric.named import CX7
from sim.fabric.nic import Direction
from sim.kernel import Kernel, Seed

# 10 bytes a nanosecond, nothing else costs anything.
PLAIN = replace(
    CX7,
    nic_bytes_per_ns=10.0,
    read_bytes_per_ns=10.0,
    queue_pair_bytes_per_ns=10.0,
    nic_work_request_ns=0,
    write_landing_ns=0,
    write_completion_ns=0,
    read_landing_ns=0,
    read_completion_ns=0,
)


@pytest.fixture
def kernel():
    with Kernel(Seed(1)).running() as kernel:
        yield kernel


def _flow(*path: Direction, ceiling: float = 1e9) -> Flow:
    return Flow(0.0, path, ceiling, lambda: None)


def test_one_flow_gets_the_narrower_direction() -> None:
    """Its rate is what the slower of the two NICs has."""
    assert max_min_rates([_flow(Direction(10.0), Direction(4.0))]) == [4.0]


def test_max_min_rates_of_the_textbook_example() -> None:
    """Three flows, two shared resources: the scarce one is split, the rest is for the third."""
    narrow, wide, other = Direction(10.0), Direction(30.0), Direction(100.0)
    flows = [_flow(narrow, wide), _flow(narrow, other), _flow(other, wide)]
    assert max_min_rates(flows) == [5.0, 5.0, 25.0]


def test_a_ceiling_leaves_its_rest_to_the_others() -> None:
    """A flow that cannot use its share does not keep it."""
    shared = Direction(10.0)
    flows = [_flow(shared, Direction(99.0), ceiling=2.0), _flow(shared, Direction(99.0))]
    assert max_min_rates(flows) == [2.0, 8.0]


def test_two_flows_into_one_nic_share_it(kernel: Kernel) -> None:
    """Processor sharing, closed form: 1000 and 3000 bytes at 10/ns end at 200 and 400 ns."""
    world = FabricWorld(kernel, PLAIN)
    world.add_machine("p2")
    world.post(world.connect("d", "p"), [1000])
    world.post(world.connect("d", "p2"), [3000])
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [200, 400]


def test_a_latecomer_slows_down_who_is_there(kernel: Kernel) -> None:
    """2000 bytes from 0, 1000 from 100 ns: 1000 remain for each, both end at 300."""
    world = FabricWorld(kernel, PLAIN)
    one, other = world.connect(), world.connect()
    world.post(one, [2000])
    kernel.call_later(100, world.post, other, [1000])
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [300, 300]


def test_opposite_directions_do_not_share(kernel: Kernel) -> None:
    """A read and a write of one engine use different directions of its NIC."""
    world = FabricWorld(kernel, PLAIN)
    world.post(world.connect(), [1000], read=True)
    world.post(world.connect(), [1000], read=False)
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [100, 100]


def test_chains_of_one_queue_pair_follow_each_other(kernel: Kernel) -> None:
    """They do not share the wire: the first has all of it, then the second."""
    world = FabricWorld(kernel, PLAIN)
    queue_pair = world.connect()
    world.post(queue_pair, [1000])
    world.post(queue_pair, [1000])
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [100, 200]


def test_a_slower_nic_counts_from_now_on(kernel: Kernel) -> None:
    """Half the speed from 50 ns: 500 bytes are through, the other 500 take 100 ns."""
    world = FabricWorld(kernel, PLAIN)
    world.post(world.connect(), [1000])
    kernel.call_later(50, world.fabric.set_speed, world.devices["d"].nic, 0.5)
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [150]


def test_small_work_requests_are_limited_by_their_number(kernel: Kernel) -> None:
    """The NIC needs its time for each, however few bytes it has."""
    world = FabricWorld(kernel, replace(PLAIN, nic_work_request_ns=30))
    world.post(world.connect(), [10] * 100)
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [3000]


def test_rates_change_for_those_who_share_through_others(kernel: Kernel) -> None:
    """Two writers crowd d's first peer, so d's transfer there slows and the other one speeds up."""
    world = FabricWorld(kernel, PLAIN)
    for name in ("p2", "x", "y"):
        world.add_machine(name)
    world.post(world.connect("d", "p"), [10_000], read=False)
    world.post(world.connect("d", "p2"), [10_000], read=False)
    for name in ("x", "y"):
        kernel.call_later(100, partial(world.post, read=False), world.connect(name, "p"), [30_000])
    kernel.run()
    # The other one: 500 bytes at 5 a nanosecond, then 9,500 at 10 - 10/3.
    times = {landing.target: time for time, landing in world.landings.seen}
    assert times["p2"] == 100 + 1425


def _processor_sharing(sizes: list[int], bytes_per_ns: float) -> list[float]:
    """When each of flows that begin together ends: all get an equal share of what is left."""
    return [sum(min(size, other) for other in sizes) / bytes_per_ns for size in sizes]


@pytest.mark.parametrize("read", [True, False], ids=["many-to-one", "one-to-many"])
@pytest.mark.parametrize("sizes", [[1000] * 8, [500, 1000, 4000, 9000], [100, 20_000]], ids=str)
def test_flows_of_one_nic_end_as_processor_sharing_says(
    kernel: Kernel, sizes: list[int], *, read: bool
) -> None:
    """Into one NIC or out of it, whatever the sizes; each change of rate rounds up to a ns."""
    world = FabricWorld(kernel, PLAIN)
    for number, size in enumerate(sizes):
        world.add_machine(f"p{number}")
        world.post(world.connect("d", f"p{number}"), [size], read=read)
    kernel.run()
    times = {landing.target: time for time, landing in world.landings.seen}
    found = [times[f"p{number}"] for number in range(len(sizes))]
    assert found == pytest.approx(_processor_sharing(sizes, 10.0), abs=len(sizes))


def test_many_to_many_shares_every_nic_equally(kernel: Kernel) -> None:
    """Four machines write to each other: three flows share each direction of each NIC."""
    world = FabricWorld(kernel, PLAIN)
    names = ["p", "d", "p2", "d2"]
    for name in names[2:]:
        world.add_machine(name)
    for here, there in permutations(names, 2):
        world.post(world.connect(here, there), [1000], read=False)
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [300] * 12


def test_queue_pairs_share_the_nics_rate_of_work_requests(kernel: Kernel) -> None:
    """Small messages on four queue pairs are no faster than on one: it is the NIC's limit."""
    world = FabricWorld(kernel, replace(PLAIN, nic_work_request_ns=30))
    for _queue_pair in range(4):
        world.post(world.connect(), [10] * 25)
    kernel.run()
    assert [time for time, _ in world.landings.seen] == [3000] * 4


@settings(max_examples=40)
@given(
    capacities=st.lists(st.integers(1, 100), min_size=2, max_size=5),
    ends=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12),
    ceilings=st.lists(st.integers(1, 120), min_size=12, max_size=12),
)
def test_nobody_can_get_more_without_a_poorer_one_losing(
    capacities: list[int], ends: list[tuple[int, int]], ceilings: list[int]
) -> None:
    """The definition of max-min fairness, on any network: nothing carries more than it can, and
    each flow is at its ceiling, or somewhere full where nobody gets more than it."""
    egress = [Direction(float(capacity)) for capacity in capacities]
    ingress = [Direction(float(capacity)) for capacity in reversed(capacities)]
    n = len(capacities)
    flows = [
        _flow(egress[here % n], ingress[there % n], ceiling=float(ceiling))
        for (here, there), ceiling in zip(ends, ceilings, strict=False)
    ]
    rates = dict(zip(flows, max_min_rates(flows), strict=True))
    for direction in egress + ingress:
        load = sum(rate for flow, rate in rates.items() if direction in flow.path)
        assert load <= direction.bytes_per_ns * (1 + 1e-9)
    for flow, rate in rates.items():
        is_held_by = [
            direction
            for direction in flow.path
            for sharing in [[r for f, r in rates.items() if direction in f.path]]
            if sum(sharing) >= direction.bytes_per_ns * (1 - 1e-9)
            and rate >= max(sharing) * (1 - 1e-9)
        ]
        assert rate == flow.ceiling or is_held_by
