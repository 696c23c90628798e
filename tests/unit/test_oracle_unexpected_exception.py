from __future__ import annotations

import pytest
from oracle_world import OracleWorld

ONE = KeyError("block 7")


@pytest.mark.parametrize(
    "error", [ONE, TypeError("x"), AssertionError(), ZeroDivisionError(), RecursionError()]
)
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


def raised_from(error: Exception, cause: Exception) -> Exception:
    """``error`` as it is caught after ``raise error from cause``."""
    error.__cause__ = cause
    return error


READ_FAILED = RuntimeError("read failed")
IN_A_CIRCLE = raised_from(RuntimeError("a"), RuntimeError("b"))
IN_A_CIRCLE.__cause__.__cause__ = IN_A_CIRCLE  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "error",
    [
        raised_from(RuntimeError("cannot load"), ONE),
        raised_from(RuntimeError("cannot"), raised_from(ValueError("load"), ONE)),
        ExceptionGroup("some failed", [READ_FAILED, ONE]),
        ExceptionGroup("some failed", [ExceptionGroup("of these", [ONE])]),
        raised_from(RuntimeError("cannot load"), ExceptionGroup("some failed", [ONE])),
    ],
)
def test_an_error_of_the_program_is_one_inside_another_too(error: Exception) -> None:
    """The words tell both."""
    world = OracleWorld("unexpected-exception")
    world.tell("exception_logged", "d0", error)
    (violation,) = world.violations
    assert type(error).__name__ in violation.detail
    assert "from KeyError: 'block 7'" in violation.detail


@pytest.mark.parametrize(
    "error",
    [
        raised_from(RuntimeError("cannot load"), TimeoutError()),
        ExceptionGroup("some failed", [READ_FAILED, TimeoutError()]),
        IN_A_CIRCLE,
    ],
)
def test_what_a_peer_can_bring_about_is_none_inside_another_either(error: Exception) -> None:
    world = OracleWorld("unexpected-exception")
    world.tell("exception_logged", "d0", error)
    assert world.violations == []
