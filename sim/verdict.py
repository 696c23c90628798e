"""What may happen to an item on its way: the points where reality can go wrong ask for it.

The fabric, the network and the processes put a question (an item: a message, a work request, a
completion) to a chain of rules; the first rule that does not pass decides. Without rules
everything is delivered. Rules are data that others bring along: nothing here knows a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol


class Verdict:
    """A rule's answer about one item. Which answers a point honours is said where it asks."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Deliver(Verdict):
    """The item goes its ordinary way."""


@dataclass(frozen=True, slots=True)
class Delay(Verdict):
    """The item goes its ordinary way, ``by_ns`` later."""

    by_ns: int


@dataclass(frozen=True, slots=True)
class Drop(Verdict):
    """The item disappears without a sign to anybody."""


@dataclass(frozen=True, slots=True)
class Duplicate(Verdict):
    """The item is delivered, and a copy of it ``after_ns`` later."""

    after_ns: int


@dataclass(frozen=True, slots=True)
class Corrupt(Verdict):
    """The item is delivered after ``change`` was applied to its content."""

    change: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Fail(Verdict):
    """The item ends with an error of the library that carries it."""

    code: str
    message: str


DELIVER = Deliver()


class Rule(Protocol):
    """Whoever wants a say: a fault, a test."""

    def judge(self, item: Any) -> Verdict | None:
        """A verdict about ``item``, or None to let the next rule decide."""


class VerdictChain:
    """Rules in order of their addition; the first that does not pass wins."""

    def __init__(self, own: Callable[..., Any]) -> None:
        """``own`` calls what is no code under test (Kernel.own)."""
        self._own = own
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def remove(self, rule: Rule) -> None:
        self._rules.remove(rule)

    def ask(self, item: Any) -> Verdict:
        for rule in self._rules:
            verdict: Verdict | None = self._own(rule.judge, item)
            if isinstance(verdict, Corrupt):
                return Corrupt(partial(self._own, verdict.change))
            if verdict is not None:
                return verdict
        return DELIVER
