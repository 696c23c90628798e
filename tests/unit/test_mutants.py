"""Mutants fit the connector as it is, and say so when they do not."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from faults.campaign.swarm import scenario_of
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.mutants.catalog import MUTANTS, chosen
from faults.mutants.mutant import Change, Mutant, MutantOutdated

ROOT = Path(__file__).parents[2]
SOME = MUTANTS["half-of-a-state"]


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=list(MUTANTS))
def test_a_mutant_changes_what_it_says_and_is_python(mutant: Mutant) -> None:
    """The modules differ in the texts that are replaced, and its engines can be asked for."""
    changes = (mutant, *mutant.also)
    texts = mutant.mutated()
    assert set(texts) == {change.module for change in changes}
    for module, mutated in texts.items():
        shipped = (ROOT.joinpath(*module.split(".")).with_suffix(".py")).read_text()
        here = [change for change in changes if change.module == module]
        assert mutated != shipped
        assert len(mutated) - len(shipped) == sum(len(c.wrong) - len(c.right) for c in here)
        ast.parse(mutated)
    assert scenario_of(0, mutant.options(None)).connector == "hybrid"


def test_there_are_many_of_different_kinds() -> None:
    """At least twenty, in the core and in the edges, no two the same."""
    places = [(m.module, m.qualname, m.wrong) for m in MUTANTS.values()]
    core = {m.qualname for m in MUTANTS.values() if m.module.startswith("connector.core.")}
    edges = {m.qualname for m in MUTANTS.values() if not m.module.startswith("connector.core.")}
    assert len(set(places)) == len(places) >= 20
    assert min(len(core), len(edges)) >= 8


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"module": "connector.memry"}, "no module connector.memry"),
        ({"qualname": "CacheMemory.gone"}, "has no CacheMemory.gone"),
        ({"right": "text that is gone"}, "0 times, expected once"),
        ({"right": "block"}, "times, expected once"),
    ],
)
def test_a_mutant_of_code_that_is_gone_is_an_error(change: dict[str, str], complaint: str) -> None:
    """It names the mutant and the place, rather than running the connector as it is."""
    with pytest.raises(MutantOutdated, match=complaint) as error:
        msgspec.structs.replace(SOME, **change).mutated()
    assert SOME.name in str(error.value)


def test_a_further_change_that_does_not_fit_is_an_error_as_well() -> None:
    """Two in one module are both made, and each is looked for."""
    first = Change(module=SOME.module, qualname="_layer", right="def _layer(", wrong="def _layer( ")
    both = msgspec.structs.replace(SOME, also=(first,)).mutated()[SOME.module]
    assert SOME.wrong in both
    assert "def _layer( " in both
    gone = msgspec.structs.replace(first, right="text that is gone")
    with pytest.raises(MutantOutdated, match=r"half-of-a-state: .* 0 times"):
        msgspec.structs.replace(SOME, also=(first, gone)).mutated()


def test_a_mutants_seeds_have_what_it_needs() -> None:
    """One fault of each of its kinds, besides what the same seeds draw without."""
    mutant = msgspec.structs.replace(SOME, faults=("crash", "abort"))
    for seed in range(20):
        plain = scenario_of(seed, SOME.options(None))
        scenario = scenario_of(seed, mutant.options(None))
        assert scenario.faults[: len(plain.faults)] == plain.faults
        kinds = [fault["kind"] for fault in scenario.faults[len(plain.faults) :]]
        assert kinds == ["crash", "abort"]
        assert msgspec.structs.replace(scenario, faults=plain.faults) == plain


def test_an_overlay_holds_the_changed_module_alone(tmp_path: Path) -> None:
    """The shipped file is not touched."""
    shipped = ROOT / "connector" / "memory.py"
    before = shipped.read_bytes()
    SOME.write(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [tmp_path / "connector" / "memory.py"]
    assert files[0].read_text() == SOME.mutated()[SOME.module]
    assert shipped.read_bytes() == before


def test_mutants_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once; a name that there is not is bad usage."""
    assert chosen(["no-fence", "no-fence"]) == [MUTANTS["no-fence"]]
    assert chosen([]) == list(MUTANTS.values())
    assert dispatch.run(["mutants", "no-fnce"]) == ExitCode.BAD_USAGE
    assert "no-fence" in capsys.readouterr().err
