"""Signatures of ``mori.io`` in one form, from stubs, from the wheel's Python, from what pybind11
says of the wheel's classes, and from the simulator's classes.

A parameter is (name, positional only, default, type); a name, default or type that a source does
not tell is None. Keys are ``Class.method``, ``Class.attribute`` or ``function``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Parameter(NamedTuple):
    """Of a function or method; its type is without the module."""

    name: str | None
    positional_only: bool
    default: str | None
    type: str | None


class Signature(NamedTuple):
    """Without ``self``; of an attribute or a property there are no parameters."""

    parameters: tuple[Parameter, ...] | None
    returns: str | None


Signatures = dict[str, Signature]
_MODULES = re.compile(r"\b(?:mori_cpp|libmori_pybinds|torch|typing|collections\.abc)\.")
_INT = re.compile(r"SupportsInt(?: \| SupportsIndex)?")


def differences(ours: Mapping[str, Signature], theirs: Mapping[str, Signature]) -> list[str]:
    """What ``theirs`` does not have as ``ours`` says, as far as it tells."""
    found = [f"{key} is only in one of them" for key in sorted(ours.keys() ^ theirs.keys())]
    for key in sorted(ours.keys() & theirs.keys()):
        mine, other = ours[key], theirs[key]
        if not _agree(mine.returns, other.returns):
            found.append(f"{key} returns {mine.returns}, and {other.returns} there")
        if (mine.parameters is None) != (other.parameters is None):
            found.append(f"{key} is an attribute in one of them only")
            continue
        here, there = mine.parameters or (), other.parameters or ()
        if len(here) != len(there) or not all(map(_same, here, there)):
            found.append(f"{key} takes {here}, and {there} there")
    return found


def _same(one: Parameter, other: Parameter) -> bool:
    told = one.default is not None, other.default is not None
    names = one.positional_only or _agree(one.name, other.name)
    return (
        names
        and one.positional_only == other.positional_only
        and told[0] == told[1]
        and _agree(one.default, other.default)
        and _agree(one.type, other.type)
    )


def _agree(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def _type(text: str | None) -> str | None:
    """A type without its module; None for Any."""
    if text is None:
        return None
    plain = _INT.sub("int", _MODULES.sub("", text.strip("\"'")))
    return None if plain == "Any" else plain


# ------------------------------------------------------------------ from sources


def of_source(source: str, classes: Iterable[str] | None = None) -> Signatures:
    """Of a stub or a module: public names of public classes, and functions of a stub."""
    found: Signatures = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and classes is None:
            found[node.name] = _of_function(node, 0)
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        if classes is not None and node.name not in classes:
            continue
        functions = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        for item in node.body:
            if isinstance(item, ast.AnnAssign):
                name = ast.unparse(item.target)
                if not name.startswith("_"):
                    found[f"{node.name}.{name}"] = _attribute(item)
        for name, function in functions.items():
            if _is_public(name):
                found[f"{node.name}.{name}"] = _of_method(function, functions)
    return found


def _is_public(name: str) -> bool:
    return name == "__init__" or not name.startswith("_")


def _attribute(item: ast.AnnAssign) -> Signature:
    annotation = ast.unparse(item.annotation)
    return Signature(None, _type(re.sub(r"ClassVar\[(.*)\]", r"\1", annotation)))


def _of_method(function: ast.FunctionDef, siblings: Mapping[str, ast.FunctionDef]) -> Signature:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    if "property" in decorators:
        return Signature(None, _type(function.returns and ast.unparse(function.returns)))
    if function.args.vararg is not None:  # what it passes on to, after self and the function
        (call,) = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        assert isinstance(call.func, ast.Attribute)
        passed = _of_function(siblings[call.func.attr], 2).parameters
        return Signature(tuple(p._replace(positional_only=True) for p in passed or ()), None)
    return _of_function(function, 0 if "staticmethod" in decorators else 1)


def _of_function(function: ast.FunctionDef, skip: int) -> Signature:
    given = function.args
    arguments = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(arguments) - len(given.defaults)) + [*given.defaults]
    parameters = [
        Parameter(
            argument.arg,
            argument in given.posonlyargs,
            None if default is None else ast.unparse(default),
            _type(argument.annotation and ast.unparse(argument.annotation)),
        )
        for argument, default in zip(arguments, defaults, strict=True)
    ]
    if function.name == "__init__" and function.returns is None:
        return Signature(tuple(parameters[skip:]), "None")
    returns = function.returns and ast.unparse(function.returns)
    return Signature(tuple(parameters[skip:]), _type(returns))


# ----------------------------------------------------------- from what pybind says


def of_pybind(described: Mapping[str, Mapping[str, str]]) -> Signatures:
    """Of texts such as ``WaitFor(self: X, timeout_ms: int = -1) -> StatusCode``, by class."""
    found: Signatures = {}
    for class_name, members in described.items():
        for name, text in members.items():
            key = f"{class_name}.{name}" if class_name else name
            found[key] = _of_text(text, skip=bool(class_name) and not text.startswith("static "))
    return found


def _of_text(text: str, *, skip: bool) -> Signature:
    match = re.fullmatch(r"(?:static )?(\w*)\((.*)\) -> (.*)", text.strip())
    if match is None:  # a member of an enumeration, whose type is told
        return Signature(None, _type(text))
    name, inside, returns = match.groups()
    if not name:
        return Signature(None, _type(returns))
    arguments = [part for part in inside.split(", ") if part][1 if skip else 0 :]
    return Signature(tuple(map(_of_argument, arguments)), _type(returns))


def _of_argument(text: str) -> Parameter:
    name, _, rest = text.partition(": ")
    kind, _, default = rest.partition(" = ")
    default = re.sub(r"<([\w.]+): \d+>", r"\1", default)
    unnamed = re.fullmatch(r"arg\d+", name) is not None
    return Parameter(None if unnamed else name, unnamed, default or None, _type(kind))


# ---------------------------------------------------------------- from live classes


def of_classes(classes: Mapping[str, type[Any]], keys: Iterable[str]) -> Signatures:
    """Of Python classes: those of ``keys`` that they have."""
    found: Signatures = {}
    for key in keys:
        class_name, _, name = key.partition(".")
        owner = classes.get(class_name)
        if owner is None or not name:
            continue
        annotation = _annotation(owner, name)
        value = inspect.getattr_static(owner, name, None)
        if isinstance(value, property):
            value_returns = value.fget and value.fget.__annotations__.get("return")
            found[key] = Signature(None, _type(value_returns))
        elif callable(value) or isinstance(value, staticmethod):
            found[key] = _of_callable(value, isinstance(value, staticmethod))
        elif annotation is not None:
            found[key] = Signature(None, _type(annotation))
    return found


def _annotation(owner: type[Any], name: str) -> str | None:
    for base in owner.__mro__:
        if (annotation := inspect.get_annotations(base).get(name)) is not None:
            return re.sub(r"ClassVar\[(.*)\]", r"\1", str(annotation))
    return None


def _of_callable(value: Any, is_static: bool) -> Signature:
    if value is object.__init__:
        return Signature((), "None")
    signature = inspect.signature(value.__func__ if is_static else value)
    parameters = [
        Parameter(
            parameter.name,
            parameter.kind is parameter.POSITIONAL_ONLY,
            None if parameter.default is parameter.empty else _default(parameter.default),
            None if parameter.annotation is parameter.empty else _type(str(parameter.annotation)),
        )
        for parameter in signature.parameters.values()
    ]
    returns = signature.return_annotation
    told = None if returns is signature.empty else _type(str(returns))
    return Signature(tuple(parameters[0 if is_static else 1 :]), told)


def _default(value: object) -> str:
    return str(value) if hasattr(value, "value") else repr(value)
