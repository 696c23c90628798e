"""Numbers in the documents that are copies of numbers in files."""

from __future__ import annotations

import re

from source_tree import ROOT

from faults.bench.scenarios import SECTIONS
from sim.engine.roofline import named_accelerator
from sim.fabric import named_fabric
from sim.model.presets import PRESETS, get_preset


def rows(page: str) -> list[list[str]]:
    """The cells of all rows of all tables of a page, without back-quotes and separators."""
    lines = re.findall(r"^\| (.*) \|$", (ROOT / page).read_text(), re.MULTILINE)
    return [[cell.strip(" `") for cell in line.split("|")] for line in lines]


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_the_numbers_of_a_fabric_are_those_of_its_file() -> None:
    """The column of mi300x-thor2 in the table of keys."""
    fabric = named_fabric("mi300x-thor2")
    shown = {
        row[0]: number(row[2])
        for row in rows("docs/fabrics.md")
        if len(row) == 4 and hasattr(fabric, row[0]) and row[2]
    }
    assert len(shown) > 10
    assert shown == {key: getattr(fabric, key) for key in shown}


def test_the_numbers_of_an_accelerator_are_those_of_its_file() -> None:
    """The column of mi300x in the table of keys."""
    accelerator = named_accelerator("mi300x")
    shown = {
        row[0]: number(row[1])
        for row in rows("docs/step-times.md")
        if len(row) == 3 and hasattr(accelerator, row[0]) and row[1]
    }
    assert len(shown) == 7
    assert shown == {key: getattr(accelerator, key) for key in shown}


def test_the_weights_of_models_are_those_of_the_presets() -> None:
    """All presets that have any, and no others."""
    shown = {row[0].split("`")[0]: row[1:] for row in rows("docs/step-times.md") if len(row) == 5}
    shown.pop("model")
    assert sorted(shown) == sorted(name for name in PRESETS if get_preset(name).weights)
    for name, (parameters, active, experts, each) in shown.items():
        weights = get_preset(name).weights
        assert weights is not None
        uses = number(parameters if active == "all" else active)
        of = [weights.experts_per_token, weights.experts] if weights.experts else []
        assert (number(parameters), uses) == (weights.parameters, weights.active), name
        assert list(map(int, experts.split(" of ") if experts else [])) == of, name
        assert number(each) == weights.bytes_per_parameter, name


def test_every_section_of_the_benchmark_is_documented() -> None:
    """In a row of the table of scenarios, and none is there twice."""
    first = [row[0] for row in rows("docs/performance.md") if len(row) == 2]
    assert {name: first.count(name) for name in SECTIONS} == dict.fromkeys(SECTIONS, 1)
