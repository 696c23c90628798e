"""Oracles: the rules that hold in every run, whatever goes wrong, and how to watch for them."""

from __future__ import annotations

from typing import Any

import msgspec

from sim.errors import UsageError
from sim.extensions import by_name, place_of
from sim.hints import nearest
from sim.oracles.base import Oracle, OracleContext, RunFacts
from sim.oracles.blast_radius import BlastRadius
from sim.oracles.blocks import BlockHistory
from sim.oracles.bounded_waiting import BoundedWaiting
from sim.oracles.fail_closed import FailClosed
from sim.oracles.findings import Findings, Violation
from sim.oracles.leak import Leak
from sim.oracles.liveness import Liveness
from sim.oracles.release_once import ReleaseOnce
from sim.oracles.same_output import SameOutput
from sim.oracles.unexpected_exception import UnexpectedException
from sim.oracles.use_after_free import UseAfterFree
from sim.oracles.wrong_bytes import WrongBytesRead
from sim.oracles.zeroing import Zeroing
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

ORACLES: dict[str, type[Oracle]] = by_name(
    "oracles",
    (
        WrongBytesRead,
        SameOutput,
        Leak,
        UseAfterFree,
        ReleaseOnce,
        Liveness,
        BlastRadius,
        FailClosed,
        Zeroing,
        BoundedWaiting,
        UnexpectedException,
    ),
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
