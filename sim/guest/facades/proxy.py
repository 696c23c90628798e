"""Module objects: a closed facade that refuses what it lacks, and a proxy that forwards it.

A facade serves all simulated processes of a run, so guest code must not assign to one: what one
process sets, all others would see.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sim.errors import UnsupportedByFacade
from sim.kernel import Kernel
from sim.kernel.task import call_site


def unsupported(kernel: Kernel, what: str) -> UnsupportedByFacade:
    """The error to raise; the run ends with it even if guest code swallows it."""
    error = UnsupportedByFacade(
        f"{what} has no simulated counterpart, but is used at {call_site()}; "
        "add it to the facade, or do without it"
    )
    kernel.fail_run(error)
    return error


class Facade(ModuleType):
    """A stand-in for module ``name`` that has ``members`` and nothing else."""

    def __init__(self, kernel: Kernel, name: str, members: Mapping[str, Any]) -> None:
        super().__init__(name, f"Simulated counterpart of {name}.")
        vars(self).update(members)
        vars(self)["_facade_kernel"] = kernel

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name):  # probes of the import system
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise unsupported(vars(self)["_facade_kernel"], f"{self.__name__}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not _is_dunder(name):
            raise unsupported(vars(self)["_facade_kernel"], f"assigning to {self.__name__}.{name}")
        super().__setattr__(name, value)


class ModuleProxy(ModuleType):
    """``real`` with some names overridden; everything else is the real module's."""

    def __init__(self, real: ModuleType, overrides: Mapping[str, Any], name: str) -> None:
        super().__init__(name, real.__doc__)
        vars(self).update(overrides)
        vars(self)["_proxied"] = real

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_proxied"], name)

    def __dir__(self) -> list[str]:
        own = [name for name in super().__dir__() if name != "_proxied"]
        return sorted({*own, *dir(vars(self)["_proxied"])})


def refusals(kernel: Kernel, module: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Overrides for a ModuleProxy: functions that must not reach the real module."""

    def refuse(name: str) -> Any:
        def refused(*_args: Any, **_kwargs: Any) -> Any:
            raise unsupported(kernel, f"{module}.{name}")

        return refused

    return {name: refuse(name) for name in names}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
