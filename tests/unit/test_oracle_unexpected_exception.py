from __future__ import annotations

import pytest
from oracle_world import OracleWorld

ONE = KeyError("block 7")


@pytest.mark.parametrize("error", [ONE, TypeError("x"), AssertionError(), ZeroDivisionError()])
def test_an_error_of_the_program_is_a_violation(error: Exception) -> None:
    """Whatever else the connector logs."""
    world = OracleWorld("unexpected-exception")
    world.tell("exception_logged", "d0", error)
    (violation,) = world.violations
    assert violation.node == "d0"
    assert (
        f"the connector of d0 has caught and logged an error of its program: {type(error).__name__}"
        in violation.detail
    )


def test_where_it_was_raised_tells_groups_apart() -> None:
    world = OracleWorld("unexpected-exception")
    try:
        raise ONE
    except KeyError as error:
        world.tell("exception_logged", "p0", error)
    (place,) = world.violations[0].evidence["traceback"]
    assert place.endswith("in test_where_it_was_raised_tells_groups_apart")


@pytest.mark.parametrize(
    "error", [RuntimeError("read failed"), TimeoutError(), ValueError("no port")]
)
def test_what_a_peer_can_bring_about_is_one_only_if_nothing_is_expected(error: Exception) -> None:
    """A connector may log a failed read with its traceback; this project's logs none."""
    world = OracleWorld("unexpected-exception")
    world.tell("exception_logged", "d0", error)
    assert world.violations == []
    world.d0.connector.kind.expects_what_it_logs = False
    world.tell("engine_started", world.d0)
    world.tell("exception_logged", "p0", error)
    assert world.violations == []
    world.tell("exception_logged", "d0", error)
    assert [violation.node for violation in world.violations] == ["d0"]
