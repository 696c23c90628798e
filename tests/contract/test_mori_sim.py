from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hw_tests.arms.sim import SimArm, run_on_sim
from hw_tests.conformance import CASES
from hw_tests.conformance.arm import Case
from sim.fabric.mori.session import IOEngineSession

SECTIONS = {case.section for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
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


def test_cases_cover_the_sections() -> None:
    """Each fact that is easily got wrong has a case, but the one about processor time."""
    assert {f"0.{n}" for n in range(1, 10)} <= SECTIONS
    assert {f"2.{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15)} <= SECTIONS


def test_cases_stay_runnable_elsewhere() -> None:
    """What runs beside the real library is Python 3.10 and knows neither simulator nor vLLM."""
    hw_tests = Path(__file__).parents[2] / "hw_tests"
    files = [*hw_tests.glob("conformance/*.py"), hw_tests / "__init__.py"]
    files += [hw_tests / f"arms/{name}.py" for name in ("__init__", "real", "run_case")]
    files += [
        hw_tests / f"arms/mori_cpu/{name}.py" for name in ("__init__", "arm", "stand_in/torch")
    ]
    files += [*hw_tests.glob("preflight/*.py"), *hw_tests.glob("arms/rocm/*.py")]
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
