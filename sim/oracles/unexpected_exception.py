"""Unexpected exceptions: a connector's last nets catch errors of its own program, and log them.

A net keeps the engine up and one request's error off the others, so nothing else need be broken.
That does not make the error right: what it did not get done shows in another run. An exception that
ends an engine is ``liveness``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sim.kernel.frames import described_with_place, traceback_of
from sim.oracles.base import Oracle, OracleContext

_OF_A_PROGRAM = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)
"""What no peer, network or driver raises."""


class UnexpectedException(Oracle):
    """O11."""

    name = "unexpected-exception"
    summary = "The connector logs no exception that tells of an error in its own program"

    def __init__(self, context: OracleContext, parameters: Any = None) -> None:
        super().__init__(context, parameters)
        self._expects: dict[str, bool] = {}

    def engine_started(self, engine: Any) -> None:
        connector = engine.connector
        self._expects[engine.name] = connector is None or connector.kind.expects_what_it_logs

    def exception_logged(self, node: str, error: BaseException) -> None:
        found = next((e for e in _with_what_it_wraps(error) if isinstance(e, _OF_A_PROGRAM)), None)
        if self._expects.get(node, True) and found is None:
            return
        wrapped = "" if found is None or found is error else f", from {described_with_place(found)}"
        self.report(
            f"the connector of {node} has caught and logged an error of its program: "
            f"{described_with_place(error)}{wrapped}",
            node=node,
            traceback=traceback_of(error),
        )


def _with_what_it_wraps(error: BaseException) -> Iterator[BaseException]:
    """``error``, what it was raised from, and the members of groups, each once. What was merely
    being handled when it was raised is not among them: that may be a peer's."""
    waiting, seen = [error], list[BaseException]()
    while waiting:
        current = waiting.pop(0)
        if any(current is one for one in seen):
            continue
        seen.append(current)
        yield current
        if current.__cause__ is not None:
            waiting.append(current.__cause__)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
