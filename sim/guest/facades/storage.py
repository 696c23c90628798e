"""``threading.local``: attributes that each thread has for itself.

Reading or writing an attribute is no preemption point, as it is none of a library call.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sim.kernel import Kernel

_STATE = "_local__state"  # in a slot, because each thread has a __dict__ of its own


class _State:
    """What all threads share of one local: constructor arguments, and the key of its values."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.outside_tasks: dict[Any, Any] = {}


class local:
    """Thread-local data; a subclass's ``__init__`` runs again in each thread that uses it."""

    __slots__ = (_STATE, "__dict__")

    _kernel: ClassVar[Kernel]

    def __new__(cls, /, *args: Any, **kwargs: Any) -> local:
        if (args or kwargs) and cls.__init__ is local.__init__:
            raise TypeError("Initialization arguments are not supported")
        self = super().__new__(cls)
        object.__setattr__(self, _STATE, _State(args, kwargs))
        _values(self)[_state(self)] = {}  # __init__ of this thread comes next
        return self

    def __init__(self) -> None:
        """Nothing to initialise."""

    def __getattribute__(self, name: str) -> Any:
        _select(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse_dict(self, name)
        _select(self)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _refuse_dict(self, name)
        _select(self)
        object.__delattr__(self, name)


def _state(instance: local) -> _State:
    state: _State = object.__getattribute__(instance, _STATE)
    return state


def _values(instance: local) -> dict[Any, Any]:
    """The current thread's values of all locals."""
    task = type(instance)._kernel.current()
    return task.locals if task is not None else _state(instance).outside_tasks


def _select(instance: local) -> None:
    """Make the current thread's attributes the instance's attributes."""
    state = _state(instance)
    values = _values(instance)
    attributes = values.get(state)
    if attributes is not None:
        object.__setattr__(instance, "__dict__", attributes)
        return
    values[state] = attributes = {}
    object.__setattr__(instance, "__dict__", attributes)
    type(instance).__init__(instance, *state.args, **state.kwargs)


def _refuse_dict(instance: local, name: str) -> None:
    if name == "__dict__":
        raise AttributeError(
            f"{type(instance).__name__!r} object attribute '__dict__' is read-only"
        )
