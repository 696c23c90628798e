from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from faults.cells import possible_phases
from faults.cli import dispatch
from faults.cli.options import RunOptions, build_scenario
from faults.cli.outcome import ExitCode
from faults.coverage import Coverage, holes, merge
from faults.fault import Fault, parameters
from faults.kinds import KINDS
from faults.schedule import decode, encode, parse
from sim.errors import TestbedError, UsageError
from sim.scenario import dumps, loads

ROOT = Path(__file__).parents[2]
RECORDS_OF_THAT_NAME = {"completion-lost", "hand-off-lost", "queue-pair-error"}
"""Of the event log, which people are told about."""


def rows_of_documentation() -> dict[str, tuple[str, str]]:
    """Kind → parameters and description, from the table in docs/faults.md."""
    text = (ROOT / "docs/faults.md").read_text().partition("## Kinds")[2]
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| (.*?) \|$", text, flags=re.MULTILINE)
    return {kind: (values, description) for kind, values, description in rows}


def test_every_kind_is_documented_with_its_parameters_and_defaults() -> None:
    """A line for each, no line for what is not there, and the code's own words."""
    expected = {}
    for name, kind in KINDS.items():
        values = msgspec.to_builtins(kind())
        shown = [f"`{key}: {json.dumps(values[key])}`" for key in parameters(kind)]
        expected[name] = (", ".join(shown) or "none", kind.summary())
    assert rows_of_documentation() == expected


def test_a_kind_is_one_file_that_nothing_else_names() -> None:
    """Whoever adds a file has added a kind: to lists, files, command lines and coverage. Mutants
    may ask for one that shows them."""

    class Meteorite(Fault, frozen=True, tag="meteorite"):
        """Everything is gone."""

    Meteorite.__module__ = "faults.kinds.meteorite"
    from faults.kinds import _kinds_below

    assert Meteorite in list(_kinds_below(Fault))
    assert all(kind.__module__.startswith("faults.kinds.") for kind in KINDS.values())
    apart = ("kinds", "mutants")
    sources = [p for p in (ROOT / "faults").rglob("*.py") if p.parent.name not in apart]
    named = {
        f"{path.name}: {kind}"
        for path in sources
        for kind in KINDS.keys() - RECORDS_OF_THAT_NAME
        if re.search(rf"[\"']{kind}[\"']", path.read_text())
    }
    assert named == set()


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_survives_the_way_through_a_scenario(name: str) -> None:
    """As text on the command line, in the scenario, in its file, and back."""
    scenario = build_scenario(RunOptions(faults=(f"{name}:at_s=2",)))
    (fault,) = decode(loads(dumps(scenario)).faults, source="test")
    assert isinstance(fault, KINDS[name])
    assert fault == parse(f"{name}:at_s=2")
    assert fault.when.at_s == 2
    assert encode([fault]) == scenario.faults


def test_keys_of_trigger_target_and_kind_stand_side_by_side() -> None:
    """And a value may contain commas."""
    crash = parse("crash:node=p0,phase=read_posted,nth=2,for_s=5")
    assert msgspec.to_builtins(crash) == {
        "kind": "crash",
        "when": {"at_s": 0.0, "phase": "read_posted", "event": None, "nth": 2, "during": None},
        "target": {"node": "p0", "peer": None, "rank": None, "request": None},
        "for_s": 5.0,
    }
    assert parse("completion-error:message=lost, it seems,node=d0").message == "lost, it seems"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("crsh", "did you mean 'crash'?"),
        ("crash:nod=p0", "crash has no parameter 'nod' (did you mean 'node'?)"),
        ("crash:peer=d0", "target.peer means nothing to crash; it takes node, rank"),
        ("crash:request=req-1", "target.request means nothing to crash"),
        ("crash:phase=nowhere", "faults[0].when.phase: is 'nowhere', expected one of: allocated"),
        ("crash:nth=2", "nth is 2, and counts phase or event; give one of them"),
        ("crash:phase=decode,event=landed", "phase and event exclude each other"),
        ("crash:for_s=-1", "faults[0].for_s"),
        ("crash:p0", "'p0' is no KEY=VALUE; expected KIND:KEY=VALUE,KEY=VALUE, such as crash:node"),
        ("a:b", "expected KIND:KEY=VALUE,KEY=VALUE, such as bandwidth-reduced:node=p0,at_s=1; "),
        ("crash node=p0", "after crash comes a colon; expected KIND:KEY=VALUE,KEY=VALUE, such as"),
        ("crash,node=p0", "after crash comes a colon; expected KIND:"),
        ("crash=p0", "after crash comes a colon; expected KIND:"),
        ("crash:node=p0;at_s=1", "expected --fault crash:node=p0,at_s=1"),
        ("crash:node=p0 at_s=1 for_s=2", "expected --fault crash:node=p0,at_s=1,for_s=2"),
        ("late-landing:by_s=21", "is 21, expected a number, above 0, at most 20"),
        ("completion-error:code=OOPS", "expected one of: BAD_RESP"),
    ],
)
def test_what_is_not_accepted_is_named_with_the_remedy(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a message that says what is wrong and what would be right."""
    with pytest.raises(UsageError, match=re.escape(said)):
        parse(text)
    assert dispatch.run(["run", "--fault", text]) == ExitCode.BAD_USAGE
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_a_file_with_an_unknown_kind_is_refused() -> None:
    """With the file's name and the place in it."""
    said = (
        r"my\.yaml: faults\[1\]\.kind: there is no fault kind 'x'; one of your own goes to "
        r"faults/kinds/; faultlab faults lists them: abort, "
    )
    with pytest.raises(UsageError, match=said):
        decode([{"kind": "abort"}, {"kind": "x"}], source="my.yaml")


def test_coverage_counts_and_shows_what_is_missing() -> None:
    """A possible cell that nobody hit is a hole; an impossible one does not exist."""
    coverage = Coverage()
    coverage.hit("completion-lost", "read_done")
    coverage.hit("completion-lost", "read_done")
    table = coverage.table(["completion-lost"])
    possible = possible_phases("completion-lost")
    assert table == {"completion-lost": {**dict.fromkeys(possible, 0), "read_done": 2}}
    assert holes(table) == [("completion-lost", p) for p in possible if p != "read_done"]
    assert merge([table, table])["completion-lost"]["read_done"] == 4
    assert merge([coverage.table(KINDS)]).keys() == KINDS.keys()


def test_a_cell_that_cannot_be_and_was_hit_is_an_error() -> None:
    """It names the cell, the file and the reason."""
    coverage = Coverage()
    coverage.hit("disagreement", "prefill")
    with pytest.raises(TestbedError, match="disagreement reached a request in phase prefill") as e:
        coverage.table(["disagreement"])
    assert "impossible_cells.yaml" in str(e.value)
    assert "about no request" in str(e.value)


def test_every_kind_can_reach_some_phase_and_has_one_line_of_description() -> None:
    """What lists and tables show."""
    for name, kind in KINDS.items():
        assert possible_phases(name) or kind.before_start, name
        assert kind.summary().endswith("."), name
