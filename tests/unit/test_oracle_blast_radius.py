from __future__ import annotations

from typing import Any

from oracle_world import OracleWorld


def two_loads(status: str = "RETRY_EXC") -> tuple[OracleWorld, Any, Any]:
    """The load of r0 into blocks 4-5 fails, that of r1 into 6-7 lands."""
    world = OracleWorld("blast-radius").at(1)
    world.hold(world.p0, "r0-p0", [1, 2])
    world.hold(world.d0, "r0-d0", [4, 5])
    world.hold(world.d0, "r1-d0", [6, 7])
    failing, other = world.chain([4, 5]), world.chain([6, 7])
    for chain in (failing, other):
        world.tell("transfer_posted", chain)
    world.transfer([1, 2], [6, 7])
    world.at(2).tell("transfer_ended", failing, status)
    return world, failing, other


def end(world: OracleWorld, request: str, outcome: str = "error") -> None:
    world.tell("request_ended", request, outcome, [])


def test_a_request_that_dies_of_anothers_failed_transfer_is_a_violation() -> None:
    """O7: the violation names both, and how the transfer ended."""
    world, _, other = two_loads()
    world.tell("transfer_ended", other, "SUCCESS")
    end(world, "r0")
    end(world, "r1")
    (violation,) = world.violations
    assert violation.request_id == "r1"
    assert violation.evidence["kind"] == "innocent-ended"
    assert "a transfer of r0 had ended with RETRY_EXC at 2.000000 s" in violation.detail


def test_the_request_of_a_failed_transfer_may_end() -> None:
    """O7: it alone; and others may end well, or be aborted."""
    world, _, other = two_loads()
    world.tell("transfer_ended", other, "SUCCESS")
    end(world, "r0")
    end(world, "r1", "abort")
    assert world.violations == []


def test_a_request_whose_own_transfer_was_flushed_or_refused_is_not_innocent() -> None:
    """O7: a queue pair in error fails everybody's transfers, each its own request's."""
    for status in ("WR_FLUSH", "REFUSED", "LOST"):
        world, _, other = two_loads()
        world.tell("transfer_ended", other, status)
        end(world, "r0")
        end(world, "r1")
        assert world.violations == []


def test_a_request_whose_completion_was_lost_is_not_innocent() -> None:
    """O7: nobody has heard that its transfer succeeded, so it may give up."""
    world, _, _ = two_loads()
    end(world, "r0")
    end(world, "r1")
    assert world.violations == []


def test_a_request_that_shares_the_blocks_of_a_failed_load_is_not_innocent() -> None:
    """O7: r1 found r0's blocks in the prefix cache, and they hold nothing."""
    world, _, other = two_loads()
    world.hold(world.d0, "r1-d0", [5])
    world.tell("transfer_ended", other, "SUCCESS")
    end(world, "r0")
    end(world, "r1")
    assert world.violations == []


def test_a_request_whose_load_is_reported_as_failed_is_not_innocent() -> None:
    """O7: its bytes came, but the producer did not confirm them. A load that a step waits for is
    reported by its blocks, any other by its request."""
    for reports in (
        lambda world: world.tell("blocks_not_loaded", "d0", 0, [7]),
        lambda world: world.tell("receiving_finished", "d0", 0, "r1-d0", failed=True),
    ):
        world, _, other = two_loads()
        world.tell("transfer_ended", other, "SUCCESS")
        reports(world)
        end(world, "r0")
        end(world, "r1")
        assert world.violations == []
    world, _, other = two_loads()
    world.tell("transfer_ended", other, "SUCCESS")
    world.tell("blocks_not_loaded", "d0", 0, [4, 5])
    end(world, "r1")
    assert [violation.request_id for violation in world.violations] == ["r1"]


def test_blocks_of_a_load_that_went_well_may_not_be_reported() -> None:
    """O7: the connector says itself that r1 is loaded, and takes its blocks with those of r0."""
    world, _, other = two_loads()
    world.tell("transfer_ended", other, "SUCCESS")
    world.tell("receiving_finished", "d0", 0, "r1-d0", failed=False)
    world.tell("blocks_not_loaded", "d0", 0, [4, 5, 6, 7])
    end(world, "r1")
    assert [violation.request_id for violation in world.violations] == ["r1"]


def test_an_error_without_any_failed_transfer_is_not_judged_here() -> None:
    """O7 is about transfers."""
    world, _, other = two_loads("SUCCESS")
    world.tell("transfer_ended", other, "SUCCESS")
    end(world, "r1")
    assert world.violations == []


def test_an_engine_that_dies_of_a_failed_transfer_is_a_violation_of_its_own_kind() -> None:
    """O7: unless it was crashed, or the request is long over."""
    world, _, _ = two_loads()
    world.tell("engine_died", "d0", "crashed", injected=True, traceback=())
    assert world.violations == []
    world.tell("engine_died", "d0", "KeyError: 4", injected=False, traceback=())
    assert [v.evidence["kind"] for v in world.violations] == ["engine-died"]
    world, _, _ = two_loads()
    end(world, "r0")
    world.tell("engine_died", "d0", "KeyError: 4", injected=False, traceback=())
    assert world.violations == []
