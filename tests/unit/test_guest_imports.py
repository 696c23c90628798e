"""Each simulated process has its own copies of the guest modules, and sees facades in them."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sim.errors import StartRefused, UsageError
from sim.guest.imports import GuestImporter
from sim.guest.pickling import restore, snapshot
from sim.guest.process import GuestProcess
from sim.guest.sources import GuestSources
from sim.kernel import Node, Process

FILES = {
    "shop/__init__.py": "STATE = []",
    "shop/clock_user.py": """
        import time
        import concurrent.futures
        from concurrent.futures import Future as AtTop

        class Body:
            import time as in_body

        def in_function():
            import time
            from concurrent import futures
            return time, futures, concurrent.futures
    """,
    "shop/role.py": """
        from dataclasses import dataclass

        @dataclass
        class Message:
            text: str

        class Singleton:
            instance = None

        def set_role(role):
            Singleton.instance = role
    """,
    "shop/sub/__init__.py": "",
    "shop/sub/child.py": """
        from .. import role
        from ..role import set_role
        from . import sibling
        import shop.role as absolute
        import importlib
        late = importlib.import_module("shop.role")
    """,
    "shop/sub/sibling.py": "NAME = __name__",
    "shop/broken.py": "raise RuntimeError('half way')",
    "other/__init__.py": "",
    "other/helper.py": "VALUE = 1",
    "shop/user_of_other.py": """
        import other.helper
        from other import helper, shared
        import os.path
        value = other.helper.VALUE, helper.VALUE, shared.VALUE, os.path.sep
    """,
    "other/shared.py": "VALUE = 2",
    "shop/mutual/__init__.py": """
        import hardware_library
        from . import first
        __all__ = ["first", "late"]
    """,
    "shop/mutual/first.py": "from shop.mutual import second\nNAME = 'first'",
    "shop/mutual/second.py": "import shop.mutual.first as partner",
    "shop/mutual/late.py": "NAME = 'late'",
    "shop/takes_all.py": "from shop.mutual import *\nnames = first.NAME, late.NAME",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.split(".")[0] in {"shop", "other", "guest"}:
            del sys.modules[name]


FACADE = ModuleType("facade of time")
FUTURES = ModuleType("facade of concurrent.futures")
FUTURES.Future = object()  # type: ignore[attr-defined]


def importer(label: str, *, sources: GuestSources | None = None) -> GuestImporter:
    facades = {"time": FACADE, "concurrent.futures": FUTURES, "hardware_library": FACADE}
    return GuestImporter(label, ["shop", "other.helper"], facades, sources or GuestSources())


@pytest.fixture
def two(tree: Path) -> Iterator[tuple[GuestImporter, GuestImporter]]:
    pair = importer("p0_core_0"), importer("d0_core_0")
    yield pair
    for one in pair:
        one.close()


def test_processes_do_not_share_module_state(two: tuple[GuestImporter, GuestImporter]) -> None:
    """A singleton set in one process is not set in the other, nor in the real module."""
    producer, consumer = (one.load("shop.role") for one in two)
    producer.set_role("producer")
    consumer.set_role("consumer")
    assert (producer.Singleton.instance, consumer.Singleton.instance) == ("producer", "consumer")
    import shop.role  # type: ignore[import-not-found]

    assert shop.role.Singleton.instance is None


def test_facades_bind_in_every_kind_of_import(two: tuple[GuestImporter, GuestImporter]) -> None:
    """Imports at module level, in class bodies and inside functions all get the facade."""
    module = two[0].load("shop.clock_user")
    assert module.time is FACADE
    assert module.Body.in_body is FACADE
    assert module.AtTop is FUTURES.Future
    assert module.in_function() == (FACADE, FUTURES, FUTURES)


def test_relative_absolute_and_late_imports_reach_the_same_copy(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """However a guest imports another guest, it gets its own process's copy."""
    one = two[0]
    child, role = one.load("shop.sub.child"), one.load("shop.role")
    assert child.role is role
    assert child.absolute is role
    assert child.late is role
    assert child.set_role is role.set_role
    assert child.sibling is one.load("shop.sub.sibling")


def test_guests_below_a_shared_package_take_precedence(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """A shared package shows its guest children as copies and the rest as it is."""
    module = two[0].load("shop.user_of_other")
    assert module.value[:3] == (1, 1, 2)
    assert module.helper is two[0].load("other.helper")
    assert module.shared is sys.modules["other.shared"]


def test_the_interpreter_finds_a_copy_by_its_alias(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """vLLM's factory imports a connector module by name: the alias leads to the copy."""
    import importlib

    copy = two[0].load("shop.role")
    assert importlib.import_module(two[0].alias("shop.role")) is copy
    assert dataclasses.asdict(copy.Message("x")) == {"text": "x"}
    again = pickle.loads(pickle.dumps(copy.Message("x")))
    assert type(again) is copy.Message


def test_messages_arrive_as_the_receivers_own_classes(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """isinstance holds on the other side, and the sender's object is not shared."""
    sender, receiver = two
    process = GuestProcess(Process(Node("d0", "10.0.0.2"), "core"), receiver)
    message = [sender.load("shop.role").Message("x")]
    data = snapshot(message)
    message[0].text = "changed later"
    (received,) = restore(data, process)
    assert type(received) is receiver.load("shop.role").Message
    assert received.text == "x"


def test_processes_share_the_code_of_generated_methods_and_nothing_else(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """What dataclasses write is compiled for the first process; each has its own functions."""
    ours, theirs = (one.load("shop.role").Message.__init__ for one in two)
    assert ours is not theirs
    assert ours.__code__ is theirs.__code__
    assert ours.__globals__ is not theirs.__globals__
    assert "exec" not in vars(dataclasses)


def test_a_failed_import_leaves_nothing_behind(two: tuple[GuestImporter, GuestImporter]) -> None:
    """A module that raises while it is executed can be tried again."""
    for _ in range(2):
        with pytest.raises(RuntimeError, match="half way"):
            two[0].load("shop.broken")


def test_missing_modules_are_missing_for_guests_too(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """A guest that tries an optional dependency gets ModuleNotFoundError."""
    with pytest.raises(ModuleNotFoundError):
        two[0]._import("shop.nothing_here", {}, {}, ("x",), 0)
    with pytest.raises(ModuleNotFoundError):
        two[0]._import("no_such_package.sub", {}, {}, (), 0)


def test_overlay_replaces_sources_and_changes_the_digest(tree: Path, tmp_path: Path) -> None:
    """A file in the overlay wins; without one the installed text is used; the hash tells."""
    overlay = tmp_path / "overlay"
    (overlay / "shop").mkdir(parents=True)
    (overlay / "shop" / "role.py").write_text("PATCHED = True")
    plain, patched = GuestSources(), GuestSources(overlay)
    assert not hasattr(importer("a_0", sources=plain).load("shop.role"), "PATCHED")
    other = importer("b_0", sources=patched)
    assert other.load("shop.role").PATCHED
    assert other.load("shop.sub.sibling").NAME == "guest.b_0.shop.sub.sibling"
    plain.find("shop.sub.sibling")
    assert plain.digest() != patched.digest()
    patched.require_overlay_in_use()


def test_an_overlay_without_a_module_that_is_used_is_refused(tree: Path, tmp_path: Path) -> None:
    """A directory one too deep would otherwise pass for a patch that changes nothing."""
    (tmp_path / "vllm").mkdir()
    sources = GuestSources(tmp_path / "vllm")
    importer("c_0", sources=sources).load("shop.sub.sibling")
    with pytest.raises(StartRefused, match="no module of the engines is in overlay"):
        sources.require_overlay_in_use()


@pytest.mark.parametrize("file", ["shop.py", "shop/role.py", "shop/sub/deep/sibling.py"])
def test_an_overlay_is_refused_early_only_if_no_guest_can_be_in_it(
    tmp_path: Path, file: str
) -> None:
    """One file below a package of guests may be what is used; which it is, loading tells."""
    overlay = tmp_path / "overlay"
    (overlay / "shop" / "sub" / "deep").mkdir(parents=True)
    (overlay / "other.py").write_text("")
    sources = GuestSources(overlay)
    with pytest.raises(StartRefused, match=f"no module of the engines is in overlay '{overlay}'"):
        sources.require_usable_overlay(["shop", "tools"])
    (overlay / file).write_text("")
    sources.require_usable_overlay(["shop", "tools"])
    GuestSources().require_usable_overlay(["shop"])


def test_overlay_must_be_a_directory(tmp_path: Path) -> None:
    """A wrong path is a usage error that names it."""
    with pytest.raises(UsageError, match="nowhere"):
        GuestSources(tmp_path / "nowhere")


def test_a_package_is_executed_before_its_modules(two: tuple[GuestImporter, GuestImporter]) -> None:
    """As Python does it; modules that import each other depend on it. The real package, which
    needs a library that is not here, is not touched by looking for them."""
    first = two[0].load("shop.mutual.first")
    package = two[0].load("shop.mutual")
    assert package.first is first
    assert first.second.partner is first
    assert not any(name.startswith("shop.mutual") for name in sys.modules)


def test_star_imports_bring_the_modules_that_all_names(
    two: tuple[GuestImporter, GuestImporter],
) -> None:
    """Also those that nobody has imported yet."""
    assert two[0].load("shop.takes_all").names == ("first", "late")
