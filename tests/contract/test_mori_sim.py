from __future__ import annotations

import pytest
from mori_arm import Case
from mori_conformance import CASES
from mori_sim_arm import SimArm, run_on_sim

SECTIONS = {case.section for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
@pytest.mark.parametrize("perturb", [False, True], ids=["in-order", "shuffled"])
def test_simulated_library_conforms(case: Case, perturb: bool) -> None:
    """The simulated ``mori.io`` behaves as the case says, in whatever order threads run."""
    assert case.needs <= SimArm.features
    run_on_sim(case.check, perturb=perturb)


def test_cases_cover_the_sections() -> None:
    """Each fact that is easily got wrong has a case, but the one about processor time."""
    assert {f"0.{n}" for n in range(1, 10)} <= SECTIONS
    assert {f"2.{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15)} <= SECTIONS


def test_cases_stay_runnable_elsewhere() -> None:
    """The suite imports neither the simulator nor vLLM, so that it runs on the real library."""
    import ast
    from pathlib import Path

    for path in sorted(Path(__file__).parent.glob("mori_*.py")):
        if path.name == "mori_sim_arm.py":
            continue
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not [n for n in names if n.split(".")[0] in ("sim", "vllm", "faults")], path.name
