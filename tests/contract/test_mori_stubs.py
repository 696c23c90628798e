"""The stubs of ``mori.io`` say what the released library and the simulated one take and return."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mori_signatures import Signatures, differences, of_classes, of_pybind, of_source

from hw_tests.arms.mori_cpu.build import BUILD, Unavailable, prepare
from sim.fabric.mori import config, descriptors, engine, enums, failures, session, status

STUBS = Path(__file__).parents[2] / "stubs/mori"
IO, CPP = (STUBS / name for name in ("io/__init__.pyi", "cpp.pyi"))
WRAPPED = ("IOEngine", "IOEngineSession")
"""Classes that the library writes in Python, over its own."""

_DESCRIBE = """
import json, sys
from mori import cpp
import mori.io
def text(name, value, owner):
    if isinstance(value, property):
        return value.fget.__doc__.strip().splitlines()[0]
    if isinstance(value, staticmethod):
        return "static " + getattr(owner, name).__doc__.strip().splitlines()[0]
    if isinstance(value, owner):
        return owner.__name__
    return value.__doc__.strip().splitlines()[0]
described = {"": {}}
for name in json.loads(sys.argv[1]):
    found = getattr(cpp, name)
    if not isinstance(found, type):
        described[""][name] = found.__doc__.strip().splitlines()[0]
        continue
    public = {k: v for k, v in vars(found).items() if k == "__init__" or not k.startswith("_")}
    if "__init__" in public and "Initialize self" in public["__init__"].__doc__:
        del public["__init__"]  # it cannot be called
    described[name] = {k: text(k, v, found) for k, v in public.items()}
print(json.dumps({"classes": described, "exports": [n for n in dir(mori.io) if n[0] != "_"]}))
"""
_MADE_BY_THE_LIBRARY = ("IOEngineSession.__init__", "PeerFailureEvent.__init__")
_ENUM = {"__init__", "name", "value"}


def stub_of_cpp() -> Signatures:
    """With the functions that ``mori.io`` passes on."""
    functions = {key: what for key, what in of_source(IO.read_text()).items() if "." not in key}
    return {**of_source(CPP.read_text()), **functions}


def stub_of_wrapped(source: str | None = None) -> Signatures:
    return of_source(source or IO.read_text(), WRAPPED)


@functools.cache
def described() -> tuple[Signatures, tuple[str, ...]]:
    """What the released library says of its bound classes, and what ``mori.io`` exports."""
    try:
        prepared = prepare()
    except Unavailable as error:
        pytest.skip(str(error))
    names = sorted({key.partition(".")[0] for key in stub_of_cpp()})
    done = subprocess.run(
        [str(prepared.python), "-c", _DESCRIBE, json.dumps(names)],
        env=prepared.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    classes = answer["classes"]
    for members in classes.values():
        if "name" in members and "value" in members:  # an enumeration: its base is in the stub
            for name in _ENUM:
                members.pop(name)
    return of_pybind(classes), tuple(answer["exports"])


def wheel_source() -> str:
    described()
    return (BUILD / "wheel/mori/io/engine.py").read_text()


def simulated() -> Signatures:
    """Of what the stubs name."""
    classes = {
        name: value
        for module in (config, descriptors, engine, enums, failures, session, status)
        for name, value in vars(module).items()
        if isinstance(value, type)
    }
    return of_classes(classes, stubs_of_classes())


def stubs_of_classes() -> Signatures:
    both = {**stub_of_cpp(), **stub_of_wrapped()}
    return {
        key: what for key, what in both.items() if "." in key and key not in _MADE_BY_THE_LIBRARY
    }


def test_the_stubs_say_what_the_librarys_python_says() -> None:
    """Names, order, defaults and types of every method, as far as the library writes them."""
    assert differences(stub_of_wrapped(), of_source(wheel_source(), WRAPPED)) == []


def test_the_stubs_say_what_the_bound_classes_say() -> None:
    """Signatures and attributes of the classes and functions from C++."""
    assert differences(stub_of_cpp(), described()[0]) == []


def test_the_stubs_name_all_that_is_exported() -> None:
    """But modules that the library imports for itself, and the allocators of FABRIC memory."""
    source = IO.read_text()
    missing = [name for name in described()[1] if not re.search(rf"\b{name}\b", source)]
    allocators = ["fabric_allocator", "fabric_mem_pool", "fabric_torch_allocator"]
    allocators += ["make_fabric_mem_pool", "use_fabric_torch_allocator"]
    assert sorted(missing) == sorted(["ctypes", "engine", "mori_cpp", "warnings", *allocators])


def test_the_simulated_library_takes_and_returns_what_the_stubs_say() -> None:
    """Names of parameters too, because they are accepted as keywords."""
    assert differences(stubs_of_classes(), simulated()) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("timeout_ms: int = -1", "timeout_ms: int = 0", "IOEngine.wait_all takes"),
        ("self, mem_desc: M", "self, desc: M", "IOEngine.deregister_memory takes"),
        ("    def alive(self) -> bool: ...\n", "", "IOEngineSession.alive is only in one"),
        ("type: BackendType)", "type: EngineDesc)", "IOEngine.remove_backend takes"),
        ("        sizes: Lists,\n", "", "IOEngine.batch_read takes"),
        ("-> StatusCode", "-> TransferStatus", "wait_all returns TransferStatus"),
    ],
)  # fmt: skip
def test_a_planted_difference_is_caught(old: str, new: str, words: str) -> None:
    """Against the released library and against the simulated one."""
    planted = IO.read_text().replace(old, new)
    assert planted != IO.read_text()
    wrong = stub_of_wrapped(planted)
    of_simulator = {key: what for key, what in simulated().items() if key.split(".")[0] in WRAPPED}
    for other in (of_simulator, of_source(wheel_source(), WRAPPED)):
        found = differences(wrong, other)
        assert found
        assert any(words in line for line in found)


def test_mypy_holds_callers_to_the_stubs(tmp_path: Path) -> None:
    """So the connector's transport and the arms of the real library cannot misuse it unseen."""
    caller = tmp_path / "caller.py"
    caller.write_text(
        "from mori.io import BackendType, IOEngine, IOEngineConfig\n"
        "engine = IOEngine('name', IOEngineConfig('10.0.0.1', 0))\n"
        "engine.create_backend(BackendType.RDMA)\n"
        "engine.remove_backend('RDMA')\n"
        "engine.get_engine_desc().key = 'other'\n"
    )
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\nstrict = true\n[mypy-torch.*]\nfollow_imports = skip\n")
    command = [sys.executable, "-m", "mypy", f"--config-file={settings}", str(caller)]
    command += [f"--cache-dir={tmp_path}"]
    done = subprocess.run(
        command,
        env={**os.environ, "MYPYPATH": str(STUBS.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = re.findall(r"caller\.py:(\d+): error", done.stdout)
    assert lines == ["4", "5"], done.stdout


_PLANTED = [
    ("sim/fabric/mori/engine.py", "self, mem_desc: MemoryDesc", "self, memory: MemoryDesc"),
    ("sim/fabric/mori/session.py", "def alive(self)", "def lives(self)"),
    ("sim/fabric/mori/config.py", "    num_events: int = 64\n", "    num_events: str = ''\n"),
    ("sim/fabric/mori/enums.py", "def value(self) -> int", "def value(self) -> str"),
    ("sim/fabric/mori/status.py", "timeout_ms: int = -1) -> S", "limit_ms: int = -1) -> S"),
    ("sim/fabric/mori/descriptors.py", "def numa_node(self)", "def numa(self)"),
    ("stubs/mori/io/__init__.pyi", "self, remote_key: str", "self, key: str"),
    ("stubs/mori/cpp.pyi", "    def pid(self) -> int", "    def pid(self) -> str"),
]


@pytest.mark.soak
def test_mypy_holds_both_libraries_to_one_definition(tmp_path: Path) -> None:
    """A method, parameter or type that is another in the simulator or in the stubs is an error
    where the two are held to the protocols."""
    root = STUBS.parents[1]
    for name in ("sim", "hw_tests", "stubs", "connector"):
        shutil.copytree(root / name, tmp_path / name)
    shutil.copy(root / "pyproject.toml", tmp_path)
    assert _errors_in_library(tmp_path) == []
    for name, old, new in _PLANTED:
        path = tmp_path / name
        good = path.read_text()
        assert old in good
        path.write_text(good.replace(old, new))
        assert _errors_in_library(tmp_path), (name, new)
        path.write_text(good)


def _errors_in_library(root: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "-m", "hw_tests.arms.library"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    return re.findall(r"hw_tests/arms/library\.py:\d+: error: (.*)", done.stdout)
