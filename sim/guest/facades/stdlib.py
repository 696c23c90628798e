"""The standard library's own code on facades: what can be run need not be modelled.

``queue`` and ``concurrent.futures`` are Python on top of ``threading`` and ``time``. A fresh copy
of such a module is executed with imports that hand out our facades of those two.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType
from typing import Any


def run_copy(name: str, facades: Mapping[str, ModuleType]) -> ModuleType:
    """A new copy of standard module ``name`` whose imports prefer ``facades``."""
    # The name under which deadlock reports skip its frames, as they skip ours.
    module = ModuleType(f"{__name__}.{name}")

    def import_(
        target: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        facade = facades.get(target)
        if facade is not None:
            return facade
        return builtins.__import__(target, globals, locals, fromlist or (), level)

    vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_}
    exec(_code(name), vars(module))
    return module


@functools.cache
def _code(name: str) -> CodeType:
    spec = importlib.util.find_spec(name)
    loader: Any = spec.loader if spec is not None else None
    code = loader.get_code(name) if loader is not None else None
    if not isinstance(code, CodeType):
        raise ImportError(f"no Python code for the standard library's {name!r}", name=name)
    return code
