"""State tables: what a state machine does on an event, as data that a test can walk through."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)
A = TypeVar("A", bound=Enum)


class Symbol(Enum):
    """A state, an event or an action. Enum's own hash is a function in Python, called twice for
    every move."""

    __hash__ = object.__hash__


class Move(NamedTuple, Generic[S, A]):
    """Where an event leads, and what has to be done on the way, in this order."""

    state: S
    actions: tuple[A, ...] = ()


class Table(Generic[S, E, A]):
    """All moves of one machine. A pair that is not listed cannot happen.

    Args:
        name: for messages.
        moves: by state and event; late and repeated messages are listed with what they do,
            which is nothing.
        final: states in which the machine is over and forgotten.
    """

    def __init__(
        self, name: str, moves: Mapping[tuple[S, E], Move[S, A]], final: frozenset[S]
    ) -> None:
        self.name = name
        self.moves = moves
        self.final = final

    def __call__(self, state: S, event: E) -> Move[S, A]:
        """The move for ``event`` in ``state``; AssertionError where the table has none."""
        move = self.moves.get((state, event))
        assert move is not None, f"{self.name}: {event.name} cannot happen in state {state.name}"
        return move
