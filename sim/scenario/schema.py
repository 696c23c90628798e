"""What a scenario file may hold, as people need it: keys, accepted values, what is wrong.

msgspec decides what is valid; this module finds the words. It walks the types and the decoded
YAML side by side, because what ``workload`` accepts depends on its ``kind``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import inspect

from sim.hints import nearest
from sim.workload.records import shown

Path = tuple[str | int, ...]
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_PLACE = re.compile(r" - at `(?:key` in `)?\$([^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_MISSING = re.compile(r"Object missing required field `(.+)`")


def fields_of(node: inspect.Type, value: Any) -> dict[str, inspect.Type]:
    """Keys that a mapping may have here, in order, and their types; {} if it is none."""
    if isinstance(node, inspect.UnionType):
        structs = [part for part in node.types if isinstance(part, inspect.StructType)]
        if not structs:
            return {}
        if structs[0].tag_field is None:  # a mapping that may be left out
            return fields_of(structs[0], value)
        tags: dict[str, inspect.Type] = {str(structs[0].tag_field): _tags(structs)}
        kind = value.get(structs[0].tag_field) if isinstance(value, dict) else None
        chosen = [part for part in structs if part.tag == kind]
        return tags | (fields_of(chosen[0], value) if chosen else {})
    if isinstance(node, inspect.StructType):
        return {field.encode_name: field.type for field in node.fields}
    return {}


def type_at(node: inspect.Type, value: Any, path: Path) -> inspect.Type:
    """The type of the place ``path``; AnyType where everything is allowed."""
    for step in path:
        if isinstance(node, inspect.VarTupleType):
            node = node.item_type
        elif isinstance(node, inspect.TupleType) and isinstance(step, int):
            node = node.item_types[step]
        elif isinstance(node, inspect.NamedTupleType) and isinstance(step, int):
            node = node.fields[step].type
        else:
            node = fields_of(node, value).get(str(step), inspect.AnyType())
        value = value_at(value, (step,))
    return node


def value_at(value: Any, path: Path) -> Any:
    """What the file holds at ``path``; None if there is nothing."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def dotted_keys(node: inspect.Type, value: Any, prefix: str = "") -> Iterator[str]:
    """All keys below ``node`` in dotted form, in order, but for items of lists."""
    for name, child in fields_of(node, value).items():
        yield prefix + name
        yield from dotted_keys(child, value_at(value, (name,)), f"{prefix}{name}.")


def explain(root: inspect.Type, value: Any, message: str) -> str:
    """msgspec's ``message`` about ``value``, with key path, offending value, and remedy."""
    place = _PLACE.search(message)
    path = _parse(place.group(1)) if place else ()
    problem = message[: place.start()] if place else message
    node = type_at(root, value, path)
    if match := _UNKNOWN.fullmatch(problem):
        unknown, around = match.group(1), value_at(value, path)
        fields = fields_of(node, around)
        hint = _belongs_under(unknown, fields, around) or nearest(unknown, fields)
        return f"{_dotted((*path, unknown))}: unknown key{hint}; accepted: {_list(fields)}"
    if match := _MISSING.fullmatch(problem):
        missing = (*path, match.group(1))
        return f"{_dotted(missing)}: missing; expected {accepted(type_at(root, value, missing))}"
    if problem.startswith(("Expected ", "Invalid ")):
        found = shown(value_at(value, path))
        return f"{_dotted(path)}: is {found}, expected {accepted(node)}"
    return f"{_dotted(path)}: {problem}" if path else problem


def _belongs_under(key: str, fields: Mapping[str, inspect.Type], around: Any) -> str:
    """A hint that one of the mappings beside ``key`` takes it, or nothing."""
    owners = [
        name for name, field in fields.items() if key in fields_of(field, value_at(around, (name,)))
    ]
    if len(owners) != 1:
        return ""
    value = shown(value_at(around, (key,)))
    return f" ({key} goes under {owners[0]}, as in {owners[0]}: {{{key}: {value}}})"


def place_of(message: str) -> Path:
    """The keys that lead to what msgspec's ``message`` is about, an unknown one included."""
    place = _PLACE.search(message)
    path = _parse(place.group(1)) if place else ()
    unknown = _UNKNOWN.fullmatch(message[: place.start()] if place else message)
    return (*path, unknown.group(1)) if unknown else path


def accepted(node: inspect.Type) -> str:
    """In words, what may stand in a place of type ``node``."""
    match node:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return _number(node)
        case inspect.StrType():
            return "text" if not node.min_length else "text that is not empty"
        case inspect.NoneType():
            return "null"
        case inspect.LiteralType():
            values = _list(map(str, node.values))
            return values if len(node.values) == 1 else f"one of: {values}"
        case inspect.DictType():
            return "a mapping with names as keys"
        case inspect.VarTupleType(item_type=inspect.NamedTupleType(fields=fields)):
            names, example = _list(field.name for field in fields), [1] * (len(fields) - 1) + [200]
            return f"a list of [{names}] with integers, such as [{example}]"
        case inspect.VarTupleType():
            kind = "a list that is not empty" if node.min_length else "a list"
            return f"{kind} ({accepted(node.item_type)} each)"
        case inspect.TupleType():
            return f"a list of {len(node.item_types)} ({accepted(node.item_types[0])} each)"
        case inspect.NamedTupleType():
            return f"a list [{_list(field.name for field in node.fields)}] of integers"
        case inspect.StructType() | inspect.UnionType():
            return _mapping_or_choice(node)
    return "any value"


def _mapping_or_choice(node: inspect.StructType | inspect.UnionType) -> str:
    if isinstance(node, inspect.StructType):
        return f"a mapping with the keys {_list(fields_of(node, None))}"
    if any(getattr(part, "tag_field", None) for part in node.types):
        (name, kinds), *_ = fields_of(node, None).items()
        return f"a mapping with the key {name}, {accepted(kinds)}"
    return " or ".join(accepted(part) for part in node.types)


def _number(node: inspect.IntType | inspect.FloatType) -> str:
    words = ["an integer" if isinstance(node, inspect.IntType) else "a number"]
    if node.ge is not None:
        words.append(f"{node.ge:g} or more")
    if node.gt is not None:
        words.append(f"above {node.gt:g}")
    if node.le is not None:
        words.append(f"at most {node.le:g}")
    return ", ".join(words)


def _tags(structs: Iterable[inspect.StructType]) -> inspect.LiteralType:
    return inspect.LiteralType(tuple(str(part.tag) for part in structs))


def _parse(path: str) -> Path:
    return tuple(name or int(index) for name, index in _STEP.findall(path))


def _dotted(path: Path) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "the document"


def _list(words: Iterable[str]) -> str:
    return ", ".join(words)
