"""Every simulated process gets its own copies of the guest modules.

Upstream keeps state in module globals (a role singleton, caches), so two engines in one
interpreter need separate module objects. A guest module is executed with its own ``__import__``:
imports at the top of a module, in class bodies and inside functions all pass through it, and it
answers with a facade, with this process's copy of another guest, or with the shared module.

Copies are known to the interpreter as ``guest.<process>.<original name>``, so that vLLM's own
factory loads a connector from its process's copy through ``kv_connector_module_path``, and
pickle, dataclasses and typing find the classes they look for.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sim.guest.compiled_once import compiled_once
from sim.guest.sources import GuestSources
from sim.kernel.plain_text import GUEST_ROOT


class PackageView(ModuleType):
    """A shared package as a guest sees it: guests and facades below it take precedence."""

    def __init__(self, name: str, importer: GuestImporter) -> None:
        super().__init__(name)
        self.__dict__["_importer"] = importer

    def __getattr__(self, attribute: str) -> Any:
        importer: GuestImporter = self.__dict__["_importer"]
        child = f"{self.__name__}.{attribute}"
        if importer.is_special(child):
            return importer.module(child)
        return getattr(importlib.import_module(self.__name__), attribute)


class GuestImporter:
    """The guest modules of one simulated process.

    Args:
        label: unique name of the process, without dots.
        roots: modules and packages to copy; a package stands for everything below it.
        facades: module name to the stand-in that guests get for it.
    """

    def __init__(
        self,
        label: str,
        roots: Iterable[str],
        facades: Mapping[str, ModuleType],
        sources: GuestSources,
    ) -> None:
        self.prefix = f"{GUEST_ROOT}.{label}."
        self._roots = dict.fromkeys(roots)
        self._facades = dict(facades)
        self._facades.setdefault("importlib", self._importlib_facade())
        self._sources = sources
        self._answers: dict[str, bool] = {}  # of is_guest
        self._copies: dict[str, ModuleType] = {}
        self._views: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}
        names = [*self._roots, *self._facades]
        self._ancestors = frozenset(
            name[:i] for name in names for i, c in enumerate(name) if c == "."
        )
        sys.modules.setdefault(GUEST_ROOT, ModuleType(GUEST_ROOT))

    # ---------------------------------------------------------------- public

    def alias(self, name: str) -> str:
        """The name under which the interpreter knows this process's copy of ``name``."""
        return self.prefix + name

    def load(self, name: str) -> ModuleType:
        """This process's copy of guest module ``name``, executed on first use."""
        if not self.is_guest(name):
            raise ValueError(f"{name!r} is not a guest; guests are {', '.join(self._roots)}")
        if name not in self._copies:
            parent = name.rpartition(".")[0]
            if self.is_guest(parent):
                self.load(parent)  # a package comes before its modules, and may import them
        if name not in self._copies:
            self._execute(name)
        return self._copies[name]

    def is_guest(self, name: str) -> bool:
        if name not in self._answers:
            above = name.rpartition(".")[0]
            self._answers[name] = name in self._roots or (bool(above) and self.is_guest(above))
        return self._answers[name]

    def is_special(self, name: str) -> bool:
        """Whether guests get anything but the shared module under this name."""
        return name in self._facades or name in self._ancestors or self.is_guest(name)

    def module(self, name: str) -> ModuleType:
        """What a guest of this process gets for an absolute module name."""
        if name in self._facades:
            return self._facades[name]
        if self.is_guest(name):
            return self.load(name)
        if name in self._ancestors:
            if name not in self._views:
                importlib.import_module(name)
                self._views[name] = PackageView(name, self)
            return self._views[name]
        return importlib.import_module(name)

    def run_script(self, path: str) -> None:
        """Execute the file at ``path`` as ``__main__``, with the imports of a guest."""
        namespace = {
            "__name__": "__main__",
            "__file__": path,
            "__builtins__": self._builtins,
        }
        exec(self._sources.script(path).code, namespace)

    def silence_finalizers(self) -> None:
        """From now on the end of a guest object has no effect: its process is gone."""
        for module in self._copies.values():
            for value in list(vars(module).values()):
                is_own_class = isinstance(value, type) and value.__module__ == module.__name__
                if is_own_class and "__del__" in vars(value):
                    del value.__del__

    def close(self) -> None:
        """Forget the copies; the interpreter no longer knows them."""
        for name in self._copies:
            sys.modules.pop(self.alias(name), None)

    # -------------------------------------------------------------- internal

    def _execute(self, name: str) -> None:
        source = self._sources.find(name)
        alias = self.alias(name)
        spec = ModuleSpec(alias, loader=None, origin=source.path, is_package=source.is_package)
        module = importlib.util.module_from_spec(spec)
        module.__file__ = source.path
        module.__dict__["__builtins__"] = self._builtins
        self._copies[name] = sys.modules[alias] = module
        try:
            with compiled_once():
                exec(source.code, module.__dict__)
        except BaseException:
            del self._copies[name], sys.modules[alias]
            raise
        parent, _, child = name.rpartition(".")
        if parent in self._copies:
            setattr(self._copies[parent], child, module)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """The guests' ``__import__``; same contract as the built-in one."""
        if level:
            package = str((globals or {}).get("__package__", ""))
            name = importlib.util.resolve_name("." * level + name, package)
            name = name.removeprefix(self.prefix)
        if not fromlist:
            self._import_chain(name)
            return self.module(name.partition(".")[0])
        module = self.module(name)
        if self.is_guest(name):
            names = getattr(module, "__all__", ()) if "*" in fromlist else fromlist
            for item in names:
                if not hasattr(module, item):
                    self._load_submodule(f"{name}.{item}")
        elif name not in self._facades:
            shared = [item for item in fromlist if not self.is_special(f"{name}.{item}")]
            if shared:
                builtins.__import__(name, {}, {}, shared)
        return module

    def _load_submodule(self, name: str) -> None:
        """``from package import x`` loads x if it is a module; if it is none, the import of the
        attribute fails by itself."""
        try:
            self._sources.find(name)
        except ModuleNotFoundError:
            return
        self.load(name)

    def _import_chain(self, name: str) -> None:
        """``import a.b.c`` must fail when c does not exist, though only a is bound."""
        if name in self._facades or self.is_guest(name):
            self.module(name)
        elif not any(name.startswith(facade + ".") for facade in self._facades):
            importlib.import_module(name)

    def _importlib_facade(self) -> ModuleType:
        facade = PackageView("importlib", self)
        facade.__dict__["import_module"] = self._import_module
        return facade

    def _import_module(self, name: str, package: str | None = None) -> ModuleType:
        if name.startswith("."):
            name = importlib.util.resolve_name(name, package or "").removeprefix(self.prefix)
        return self.module(name.removeprefix(self.prefix))
