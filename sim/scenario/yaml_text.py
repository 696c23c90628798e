"""YAML as scenarios use it: plain data only, no key twice, dates stay text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from sim.errors import UsageError


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which alone would let the last of two equal keys win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping, or an error when a key is there twice."""
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            mark, key = key_node.start_mark, str(key_node.value)
            if key in lines:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key!r} is here and in line {lines[key]}", problem_mark=mark
                )
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
    """The data in ``text``; UsageError with the line when it is not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = source if mark is None else f"{source}:{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"{where}: not valid YAML: {problem}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: is nested too deeply to be read") from error
    except (ValueError, KeyError, AttributeError) as error:  # what PyYAML makes of !!int a
        raise UsageError(f"{source}: a value does not fit its tag: {error}") from error


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
