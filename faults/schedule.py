"""Faults as text: in a scenario's ``faults``, and as ``KIND:KEY=VALUE,...`` on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from faults.fault import Fault, Target, Trigger, flat_keys, parameters
from faults.kinds import ANY_KIND, KINDS
from sim.errors import UsageError
from sim.hints import nearest
from sim.scenario import Scenario
from sim.scenario.schema import explain, place_of
from sim.scenario.yaml_text import Where, parse_yaml


class _Document(msgspec.Struct, frozen=True):
    """The part of a scenario that is decoded here."""

    faults: tuple[ANY_KIND, ...]


_ROOT = inspect.type_info(_Document)
_FORM = "expected KIND:KEY=VALUE,KEY=VALUE, such as"
_OTHER_SEPARATOR = re.compile(r"\s*[;|&\s]\s*(?=(\w+)=)")
_QUOTING = ("{", "[", "'", '"')


def decode(
    documents: Sequence[Mapping[str, Any]], *, source: str, where: Where | None = None
) -> tuple[Fault, ...]:
    """The faults that a scenario carries; ``where`` tells the places of keys in ``source``.

    Raises:
        UsageError: an unknown kind or key, or a value that is not accepted.
    """
    for number, document in enumerate(documents):
        kind = document.get("kind")
        if kind not in KINDS:
            place = where(("faults", number, "kind")) if where else source
            raise UsageError(f"{place}: faults[{number}].kind: {_unknown_kind(kind)}")
    whole = {"faults": list(documents)}
    try:
        return msgspec.convert(whole, _Document).faults
    except msgspec.ValidationError as error:
        place = where(place_of(str(error))) if where else source
        raise UsageError(f"{place}: {explain(_ROOT, whole, str(error))}") from error


def parse(text: str) -> Fault:
    """The fault that ``--fault`` was given as ``KIND`` or ``KIND:KEY=VALUE,...``.

    Keys of the trigger and the target stand beside the kind's own; values are YAML.
    """
    name, _, rest = text.partition(":")
    if name not in KINDS:
        raise UsageError(f"--fault {text}: {_not_a_kind(text, name)}")
    own, shared = parameters(KINDS[name]), flat_keys()
    document: dict[str, Any] = {"kind": name}
    for key, value in _pairs(text, name, rest):
        if key not in own and key not in shared:
            hint = nearest(key, [*own, *shared])
            raise UsageError(
                f"--fault {text}: {name} has no parameter {key!r}{hint}; it has: "
                f"{', '.join(own) or 'none of its own'}; when: {_of('when')}; "
                f"target: {_of('target')}"
            )
        _require_commas(text, value, (*own, *shared))
        place = document if key in own else document.setdefault(shared[key], {})
        place[key] = parse_yaml(value, source=f"--fault {text}: {key}")
    (fault,) = decode([document], source=f"--fault {text}")
    return fault


def with_faults(scenario: Scenario, texts: Iterable[str]) -> Scenario:
    """``scenario`` with the faults of a command line added to its own, all in full."""
    own = decode(scenario.faults, source="the scenario")
    faults = (*own, *map(parse, texts))
    return msgspec.structs.replace(scenario, faults=encode(faults))


def encode(faults: Iterable[Fault]) -> tuple[dict[str, Any], ...]:
    """Faults as a scenario carries them, defaults included."""
    return tuple(msgspec.to_builtins(fault) for fault in faults)


def as_typed(document: Mapping[str, Any]) -> str:
    """A fault as ``--fault`` takes it, without what is so by default; of a kind that is not
    installed, with all its parameters."""
    kind = KINDS.get(document["kind"])
    usual = _flat({"when": msgspec.to_builtins(Trigger()), "target": msgspec.to_builtins(Target())})
    if kind is not None:
        usual |= _flat(msgspec.to_builtins(kind()))
    told = [
        f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in _flat(document).items()
        if key not in usual or usual[key] != value
    ]
    return ":".join(filter(None, [document["kind"], ",".join(told)]))


def check_names(faults: Sequence[Fault], nodes: Sequence[str], requests: Sequence[str]) -> None:
    """UsageError when a fault is aimed at an engine or a request that there is not."""
    for number, fault in enumerate(faults):
        target = fault.target
        for key, name, known in (
            ("node", target.node, nodes),
            ("peer", target.peer, nodes),
            ("request", target.request, requests),
        ):
            if name is not None and name not in known:
                few = ", ".join(known) if len(known) < 8 else f"{known[0]} to {known[-1]}"
                raise UsageError(
                    f"faults[{number}] ({fault.kind()}): target.{key}: there is no {name!r}"
                    f"{nearest(name, known)}; there are: {few}"
                )


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a fault side by side, as on a command line."""
    own = {key: value for key, value in document.items() if key not in ("kind", "when", "target")}
    return {**own, **document.get("when", {}), **document.get("target", {})}


def _not_a_kind(text: str, name: str) -> str:
    """Of a kind that is there, but for what follows it, only the right form is told."""
    word = re.match(r"[\w-]*", name.strip())
    if word is not None and word[0] != name and word[0] in KINDS:
        return f"after {word[0]} comes a colon; {_FORM} {_example(word[0])}"
    some = next(kind for kind in KINDS if "node" in KINDS[kind].takes)
    form = "" if ":" in text and "=" in text else f"{_FORM} {_example(some)}; "
    return f"{form}{_unknown_kind(name)}"


def _require_commas(text: str, value: str, keys: Sequence[str]) -> None:
    """UsageError when another pair hides in ``value``, behind something else than a comma."""
    other = _OTHER_SEPARATOR.search(value)
    if other is not None and other[1] in keys and not value.lstrip().startswith(_QUOTING):
        right = _OTHER_SEPARATOR.sub(",", text)
        raise UsageError(f"--fault {text}: commas separate what is set; expected --fault {right}")


def _example(kind: str) -> str:
    return f"{kind}:node=p0,at_s=1" if "node" in KINDS[kind].takes else f"{kind}:at_s=1"


def _pairs(text: str, name: str, rest: str) -> list[tuple[str, str]]:
    """A comma separates pairs, unless no ``=`` follows it: ``landed=0,2,node=d0`` is two."""
    pairs: list[tuple[str, str]] = []
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if equals:
            pairs.append((key.strip(), value))
        elif pairs:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]},{part}")
        else:
            raise UsageError(f"--fault {text}: {part!r} is no KEY=VALUE; {_FORM} {_example(name)}")
    return pairs


def _of(place: str) -> str:
    return ", ".join(key for key, of in flat_keys().items() if of == place)


def _unknown_kind(name: Any) -> str:
    hint = nearest(str(name), KINDS)
    names = "" if hint else f": {', '.join(KINDS)}"
    return (
        f"there is no fault kind {name!r}{hint}; one of your own goes to faults/kinds/; "
        f"faultlab faults lists them{names}"
    )
