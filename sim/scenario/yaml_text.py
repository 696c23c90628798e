"""YAML as scenarios use it: plain data only, no key twice, dates stay text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from sim.errors import UsageError

Where = Callable[[tuple[str | int, ...]], str]
"""What messages call the place of a key: ``my.yaml:3:7``, or less if there is no such thing."""


class _TwiceError(yaml.MarkedYAMLError):
    """A key is in a mapping twice."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which alone would let the last of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, or an error when a key is there twice."""
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            mark, key = key_node.start_mark, str(key_node.value)
            if key in lines:
                problem = f"key {key!r} is here and in line {lines[key]}; keep one of them"
                raise _TwiceError(problem=problem, problem_mark=mark)
            lines[key] = mark.line + 1
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Writes everything in full: an anchor would be short, and unreadable."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _class in (_Loader, _Dumper):
    # 1e3 is a number to everybody but YAML 1.1, which wants 1.0e+3.
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"),
        list("-+0123456789"),
    )


def parse_yaml(text: str, *, source: str) -> Any:
    """The data in ``text``; UsageError with line and column when it is not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = source if mark is None else f"{source}:{mark.line + 1}:{mark.column + 1}"
        problem = getattr(error, "problem", None) or str(error)
        line = "" if isinstance(error, _TwiceError) else _line(text, mark)
        raise UsageError(f"{where}: not valid YAML: {problem}{line}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: is nested too deeply to be read") from error
    except (ValueError, KeyError, AttributeError) as error:  # what PyYAML makes of !!int a
        raise UsageError(f"{source}: a value does not fit its tag: {error}") from error


def _line(text: str, mark: yaml.Mark | None) -> str:
    """What was read where the reader gave up, and what it can read."""
    lines = text.splitlines()
    if mark is None or "\n" not in text or mark.line >= len(lines):
        return ""
    return f", in {lines[mark.line].strip()!r:.80}; expected KEY: VALUE, indented by spaces alone"


def where_in(text: str, source: str) -> Where:
    """Tells the places of keys in ``text``, which is YAML from ``source``."""

    def where(keys: tuple[str | int, ...]) -> str:
        try:
            node = yaml.compose(text, Loader=_Loader)
        except (yaml.YAMLError, RecursionError):
            return source
        mark = _mark(node, keys) if node is not None else None
        return source if mark is None else f"{source}:{mark.line + 1}:{mark.column + 1}"

    return where


def _mark(node: yaml.Node, keys: tuple[str | int, ...]) -> yaml.Mark:
    """Where the innermost of ``keys`` begins that is there; a key of a mapping, not its value."""
    mark = node.start_mark
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = {str(name.value): (name, value) for name, value in node.value}
            if str(key) not in found:
                break
            name, node = found[str(key)]
            mark = name.start_mark
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            mark = node.start_mark
        else:
            break
    return mark


def where_in_file(path: Path) -> Where:
    """``where_in`` the file at ``path``, if it can still be read."""
    try:
        return where_in(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError):
        return lambda keys: str(path)


def read_yaml(path: Path) -> Any:
    """The data in the file at ``path``; UsageError when it cannot be read or is not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 text ({error.reason}); expected YAML") from error
    return parse_yaml(text, source=str(path))


def print_yaml(data: Any) -> str:
    """``data`` in its own order; innermost collections on one line."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100)
