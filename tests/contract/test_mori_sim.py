from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest

from hw_tests.arms.sim import SimArm, run_on_sim
from hw_tests.conformance import CASES
from hw_tests.conformance.arm import Arm, Case
from sim.fabric.mori.session import IOEngineSession

ROOT = Path(__file__).parents[2]
NOT_SIMULATED = {"operating-system", "attributes"}
SIMULATED = [case for case in CASES if not case.needs & NOT_SIMULATED]


@pytest.mark.parametrize("case", SIMULATED, ids=[case.name for case in SIMULATED])
def test_simulated_library_conforms_when_threads_are_shuffled(case: Case) -> None:
    """In order they run in hw_tests, where the same cases run on the real library too."""
    assert case.needs <= SimArm.features
    run_on_sim(case.check, perturb=True)


def test_a_difference_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated library that always calls sessions alive fails the case about that."""
    (case,) = [case for case in CASES if case.name == "0.6-completion_errors"]
    monkeypatch.setattr(IOEngineSession, "alive", lambda session: True)
    with pytest.raises(AssertionError, match="RETRY_EXC"):
        run_on_sim(case.check)


@pytest.mark.parametrize("place", [None, "xgmi"])
def test_a_case_that_asks_nothing_of_the_library_fails(place: str | None) -> None:
    """It would conform whatever the library does; one that asks for a pair may go on."""
    library = SimpleNamespace(seconds=lambda: 0.0, pair=list, gpu_pair=lambda *_, **_more: [])

    def idle(arm: Arm) -> None:
        assert arm.seconds() == 0

    def made(arm: Arm) -> None:
        assert arm.pair() == []

    with pytest.raises(AssertionError, match=r"9\.9-idle.*: its body has asked nothing of the lib"):
        Case("9.9", idle, frozenset(), place).check(library)
    Case("9.9", made, frozenset(), place).check(library)


def test_only_the_system_a_nics_attributes_and_memory_of_a_fabric_are_not_simulated() -> None:
    """Everything else that is known of the library runs in the simulator too."""
    assert {case.body.__name__ for case in CASES if case not in SIMULATED} == {
        "an_idle_engine_keeps_a_core_busy",
        "an_engine_has_three_threads_and_its_workers",
        "a_backend_without_a_name_ends_the_process",
        "queue_pairs_are_made_with_these_attributes",
        "timers_and_retries_are_those_of_the_environment",
        "timers_and_retries_that_cannot_be_are_warned_of",
        "memory_of_a_fabric_is_exported",
    }


def imported_files(module: str) -> list[Path]:
    """The file of a module of the connector, and of those that it imports, and so on."""
    found: dict[str, Path] = {}
    names = [module]
    while names:
        name = names.pop()
        path = ROOT / (name.replace(".", "/") + ".py")
        if name in found or not path.exists():
            continue
        found[name] = path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("connector"):
                names.append(node.module or "")
    return sorted(found.values())


def test_the_transport_needs_little_of_the_connector() -> None:
    """It runs where vLLM is not: its settings and errors, and what these are made of, go along."""
    paths = imported_files("connector.transport")
    files = [path.relative_to(ROOT / "connector").as_posix() for path in paths]
    assert "core/config.py" in files
    assert [name for name in files if not name.startswith("core/")] == ["transport.py"]


def test_cases_stay_runnable_elsewhere() -> None:
    """What runs beside the real library is Python 3.10 and knows neither simulator nor vLLM."""
    hw_tests = Path(__file__).parents[2] / "hw_tests"
    files = [*hw_tests.glob("conformance/*.py"), hw_tests / "__init__.py"]
    files += [hw_tests / f"arms/{name}.py" for name in ("__init__", "real", "run_case")]
    files += [
        hw_tests / f"arms/mori_cpu/{name}.py" for name in ("__init__", "arm", "stand_in/torch")
    ]
    files += [*hw_tests.glob("preflight/*.py"), *hw_tests.glob("arms/rocm/*.py")]
    files += imported_files("connector.transport")
    for path in files:
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        names = [
            name
            for node in tree.body  # a function's own imports are for where it is called
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        ]
        assert not [n for n in names if n.split(".")[0] in ("sim", "vllm", "faults")], path
