"""Oracles: the rules that hold in every run, whatever goes wrong, and how to watch for them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import msgspec

from sim.errors import UsageError
from sim.extensions import by_name, line_of, load, own_methods, place_of, require_signatures
from sim.hints import nearest
from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.blocks import BlockHistory
from sim.oracles.findings import Findings, Violation
from sim.probes import Probes

__all__ = [
    "ORACLES",
    "BlockHistory",
    "Findings",
    "Oracle",
    "OracleContext",
    "RunFacts",
    "Violation",
    "default_parameters",
    "make_oracles",
    "watch",
]

_FILES = (
    "wrong_bytes",
    "same_output",
    "leak",
    "use_after_free",
    "release_once",
    "liveness",
    "blast_radius",
    "fail_closed",
    "zeroing",
    "bounded_waiting",
    "unexpected_exception",
)
"""Of this directory, those with an oracle, in the order in which lists have them."""


def _oracle_in(module: ModuleType) -> type[Oracle]:
    """The oracle of a file.

    Raises:
        UsageError: there is none, or it has no name or summary, or methods that nobody calls or
            nobody can call.
    """
    classes = [item for item in vars(module).values() if isinstance(item, type)]
    found = [
        item for item in classes if issubclass(item, Oracle) and item.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise UsageError(
            f"{module.__file__}: defines {len(found)} classes that derive from Oracle "
            "(sim/oracles/base.py); define one"
        )
    (oracle,) = found
    for attribute in ("name", "summary"):
        if not hasattr(oracle, attribute):
            raise UsageError(f"{place_of(oracle)}: has no {attribute}; give it one, a string")
    for method in own_methods(oracle, Oracle):
        name = method.__name__
        if not name.startswith("_") and not hasattr(Oracle, name):
            handlers = [known for known in dir(Oracle) if not known.startswith("_")]
            raise UsageError(
                f"{line_of(method)}: {name!r} is no handler of Probe (sim/probes.py)"
                f"{nearest(name, handlers)}, so nobody would call it; begin the name of a helper "
                "with an underscore"
            )
    require_signatures(oracle, Oracle)
    return oracle


ORACLES: dict[str, type[Oracle]] = by_name(
    "oracles",
    (_oracle_in(load(f"{__name__}.{file}")) for file in _FILES),
    lambda oracle: oracle.name,
    place_of,
)


def default_parameters(name: str) -> dict[str, Any]:
    """What can be set of an oracle, with its defaults."""
    defaults: dict[str, Any] = msgspec.to_builtins(ORACLES[name].Parameters())
    return defaults


def make_oracles(context: OracleContext) -> list[Oracle]:
    """One of each oracle, with the parameters that the context has for it.

    Raises:
        UsageError: parameters for an oracle that does not exist, or that it does not have.
    """
    unknown = sorted(context.parameters.keys() - ORACLES.keys())
    if unknown:
        raise UsageError(
            f"unknown oracle {unknown[0]!r}{nearest(unknown[0], ORACLES)}; there are: "
            f"{', '.join(ORACLES)}"
        )
    return [
        oracle(context, _parameters(oracle, context.parameters.get(name, {})))
        for name, oracle in ORACLES.items()
    ]


def watch(probes: Probes, context: OracleContext) -> list[Oracle]:
    """Let all oracles see what ``probes`` see; call ``finish`` of each at the end."""
    oracles = make_oracles(context)
    for probe in (context.blocks, *oracles):
        probes.add(probe)
    return oracles


def _parameters(oracle: type[Oracle], values: Any) -> msgspec.Struct:
    try:
        return msgspec.convert(values, oracle.Parameters)
    except msgspec.ValidationError as error:
        known = ", ".join(f"{k} ({v})" for k, v in default_parameters(oracle.name).items())
        raise UsageError(
            f"parameters of oracle {oracle.name!r}: {error}; it has: {known or 'none'}"
        ) from None
