"""What can go wrong in the testbed itself, apart from what goes wrong in the code under test."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input from a person: a scenario, an option, a file. The message says the remedy."""


class MisplacedError(UsageError):
    """Something in a scenario that its other parts do not bear out; ``keys`` lead to it."""

    def __init__(self, message: str, keys: tuple[str | int, ...]) -> None:
        super().__init__(message)
        self.keys = keys


class StartRefused(UsageError):
    """An engine did not start with what it was given."""


class TestbedError(BaseException):
    """The testbed is at fault, or guest code left it. Never caught by ``except Exception``.

    It derives from BaseException because guest code under test often swallows Exception, and
    a hole in the testbed must not be mistaken for behaviour of the guest.
    """

    __test__ = False  # not a test class, whatever pytest thinks of the name


class DeadlockError(TestbedError):
    """Nothing can happen any more although somebody still waits; lists who waits for what."""


class TaskCrashed(TestbedError):
    """A task that belongs to the testbed raised an exception."""


class FenceError(TestbedError):
    """Guest code reached for the real world: clock, sleep, thread or socket."""


class UnsupportedByFacade(TestbedError):
    """Guest code used a part of a library that its facade does not stand in for."""


class TaskKilled(BaseException):
    """Unwinds the stack of a task that will never run again, after the run has ended."""
