"""What a scenario takes that does not come with faultlab: somebody's connector or kind of fault."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from faults.kinds import KINDS
from sim.engine.connectors import CONNECTORS, get_connector
from sim.guest.sources import GuestSources
from sim.scenario import Scenario
from sim.scenario.yaml_text import read_yaml

_SHIPPED = Path(__file__).with_name("shipped_kinds.yaml")
_HASHED = "`b2sum -l 64` of that file prints `{digest}` if it is the same."


@cache
def shipped_kinds() -> frozenset[str]:
    """The names of the kinds of fault that come with faultlab."""
    return frozenset(read_yaml(_SHIPPED))


def requisites(scenario: Scenario) -> list[str]:
    """A sentence or two on each thing, with the hash of its source here.

    Raises:
        ModuleNotFoundError: a connector's module is not here either.
    """
    return [*_connectors(scenario), *_kinds(scenario)]


def _connectors(scenario: Scenario) -> Iterator[str]:
    for name in dict.fromkeys((scenario.connector, scenario.producer_connector)):
        module = get_connector(name).module
        top = module.partition(".")[0]
        if name in CONNECTORS or top == "vllm":
            continue
        source = GuestSources().find(module)
        base = module.replace(".", "/")
        file = f"{base}/__init__.py" if source.is_package else f"{base}.py"
        yield (
            f"The connector `{name}` does not come with faultlab or vLLM: module `{module}` has "
            f"to be importable: let `PYTHONPATH` name the directory in which it is `{file}`. "
            f"{_HASHED.format(digest=source.digest)}"
        )


def _kinds(scenario: Scenario) -> Iterator[str]:
    for kind in dict.fromkeys(fault["kind"] for fault in scenario.faults):
        if kind in shipped_kinds():
            continue
        file = Path(str(sys.modules[KINDS[kind].__module__].__file__))
        digest = hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
        yield (
            f"The fault kind `{kind}` does not come with faultlab, so a checkout lacks it: put "
            f"`{file.name}` into its `faults/kinds/`. {_HASHED.format(digest=digest)}"
        )
