"""Where the source text of guest modules comes from, and the hash of what was loaded.

The text is that of the installed package, unless an overlay directory (a vLLM checkout with
somebody's patch, say) has a file of the same name. Nothing is executed here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType

from sim.errors import StartRefused, UsageError


@dataclass(frozen=True)
class GuestSource:
    """One module's text, compiled. ``is_package`` decides how relative imports resolve."""

    name: str
    path: str
    is_package: bool
    code: CodeType
    digest: str


class GuestSources:
    """Finds, compiles and remembers guest sources; one object serves all processes of a run."""

    def __init__(self, overlay: Path | None = None) -> None:
        if overlay is not None and not overlay.is_dir():
            raise UsageError(
                f"overlay {str(overlay)!r} is not a directory; give the root of a checkout "
                "(the directory that holds vllm/)"
            )
        self.overlay = overlay
        self._overlay_is_used = False
        self._sources: dict[str, GuestSource] = {}

    def find(self, name: str) -> GuestSource:
        """The source of module ``name``; ModuleNotFoundError when there is none."""
        if name not in self._sources:
            path, is_package = self._locate(name)
            self._sources[name] = _compile(name, path, is_package)
        return self._sources[name]

    def script(self, path: str) -> GuestSource:
        """The source at ``path``, which a guest starts as a program of its own."""
        return _compile(path, Path(path), is_package=False)

    def require_overlay_in_use(self) -> None:
        """StartRefused when there is an overlay and no module loaded so far is from it."""
        if self.overlay is not None and not self._overlay_is_used:
            raise self._unused()

    def require_usable_overlay(self, roots: Iterable[str]) -> None:
        """The same before anything is loaded, when the overlay has nothing of ``roots``: modules,
        and packages that stand for everything below them."""
        if self.overlay is not None and not any(map(self._overlay_has, roots)):
            raise self._unused()

    def _overlay_has(self, root: str) -> bool:
        assert self.overlay is not None
        base = self.overlay.joinpath(*root.split("."))
        return base.with_suffix(".py").is_file() or any(base.rglob("*.py"))

    def _unused(self) -> StartRefused:
        return StartRefused(
            f"no module of the engines is in overlay {str(self.overlay)!r}; give the root of a "
            "checkout (the directory that holds vllm/) with a connector or a worker hook in it"
        )

    def digest(self) -> str:
        """Hash of every module loaded so far, independent of the order of loading."""
        total = hashlib.blake2b(digest_size=8)
        for name in sorted(self._sources):
            total.update(f"{name}={self._sources[name].digest}\n".encode())
        return total.hexdigest()

    def _locate(self, name: str) -> tuple[Path, bool]:
        if self.overlay is not None:
            base = self.overlay.joinpath(*name.split("."))
            for path in (base / "__init__.py", base.with_suffix(".py")):
                if path.is_file():
                    self._overlay_is_used = True
                    return path, path.name == "__init__.py"
        return _installed(name, tuple(sys.path))


@cache
def _installed(name: str, _search_path: tuple[str, ...]) -> tuple[Path, bool]:
    """Where module ``name`` is, and whether it is a package: looked for once in the life of an
    interpreter, as installed modules stay where they are. ModuleNotFoundError without a source."""
    spec = find_spec(name)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise ModuleNotFoundError(f"no Python source for guest module {name!r}", name=name)
    return Path(spec.origin), spec.submodule_search_locations is not None


def find_spec(name: str) -> ModuleSpec | None:
    """Where ``name`` is, without executing the packages above it, as importlib.util would: they
    may be guests themselves, and import what only a facade stands in for."""
    top, *below = name.split(".")
    spec = importlib.util.find_spec(top)
    for child in below:
        if spec is None or spec.submodule_search_locations is None:
            return None
        places = list(spec.submodule_search_locations)
        spec = PathFinder.find_spec(f"{spec.name}.{child}", places)
    return spec


_COMPILED: dict[tuple[str, str], CodeType] = {}  # by path and content: a cache, never state


def _compile(name: str, path: Path, is_package: bool) -> GuestSource:
    text = path.read_bytes()
    digest = hashlib.blake2b(text, digest_size=8).hexdigest()
    key = (str(path), digest)
    if key not in _COMPILED:
        try:
            _COMPILED[key] = compile(text, str(path), "exec", dont_inherit=True)
        except SyntaxError as error:
            raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    return GuestSource(name, str(path), is_package, _COMPILED[key], digest)
