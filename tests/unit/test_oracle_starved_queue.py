"""What leak and liveness make of vLLM's starved queue (docs/findings.md), and of its like."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from oracle_world import OracleWorld

Change = Callable[[OracleWorld], object]
STARVED = [("leak", "starved-queue"), *[("liveness", "starved-queue")] * 3]


def starved() -> OracleWorld:
    """``r0`` has given back what its load had filled, and wants more than is free; ``r1``, whose
    load has ended, too, has two blocks, and ``r2`` was never looked at."""
    world = OracleWorld("leak", "liveness").at(1)
    for name in ("r0", "r1", "r2"):
        world.tell("request_started", name)
        request = world.d0.add_request(f"{name}-d0", finished=False)
        if name != "r2":
            world.d0.scheduler.kv_holding_waiting.append(request)
    world.hold(world.d0, "r1-d0", [0, 4, 5])
    world.d0.scheduler.finished_recving_kv_req_ids.add("r1-d0")
    world.tell("blocks_refused", "d0", "r0-d0")
    return world


def hold_before(world: OracleWorld, leg: str) -> None:
    """Before somebody asked in vain."""
    world.hold(world.d0, leg, [9])
    world.tell("blocks_refused", "d0", "r0-d0")


def found(world: OracleWorld) -> list[tuple[str, str | None]]:
    world.at(300).finish()
    return [(violation.oracle, violation.evidence.get("kind")) for violation in world.violations]


def test_all_that_follows_from_it_has_a_kind_of_its_own() -> None:
    """O3, O6: the blocks of those who wait, and that nobody behind them ever ends."""
    world = starved()
    assert found(world) == STARVED
    assert "r2, sent at 1.000000 s, has not ended by 300.000000 s; the queue of d0 is starved" in (
        world.violations[-1].detail
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda world: world.d0.scheduler.finished_recving_kv_req_ids.clear(),
            id="a load goes on",
        ),
        pytest.param(lambda world: hold_before(world, "r9-d0"), id="another holds a block"),
        pytest.param(lambda world: hold_before(world, "r0-d0"), id="it holds one itself"),
        pytest.param(lambda world: world.hold(world.d0, "r1-d0", [6]), id="somebody got blocks"),
        pytest.param(lambda world: world.tell("blocks_refused", "d0", "r2-d0"), id="not from it"),
        pytest.param(lambda world: world.d0.scheduler.running.append("r3-d0"), id="one runs"),
        pytest.param(lambda world: world.free(world.d0, "r1-d0", [0, 4, 5]), id="all is free"),
    ],
)
def test_what_a_connector_can_do_is_not_taken_for_it(change: Change) -> None:
    """O3, O6: nor if it is only one of two reasons."""
    world = starved()
    change(world)
    assert found(world) == [("leak", None), *[("liveness", "not-ended")] * 3]


def test_a_request_that_has_ended_and_stays_is_a_leak_all_the_same() -> None:
    """O3: without blocks, it starves nobody, and yet nobody has said that it may go."""
    world = starved()
    world.d0.add_request("r9-d0", finished=True)
    assert found(world) == [("leak", None), *STARVED[1:]]


def test_other_engines_and_requests_are_judged_as_ever() -> None:
    """O3, O6: what p0 keeps, and who waits elsewhere."""
    world = starved()
    world.tell("request_started", "r9")
    world.p0.add_request("r9-p0", finished=False)
    assert found(world) == [("leak", None), *STARVED, ("liveness", "not-ended")]
