"""Numbers in the documents that are copies of numbers in files."""

from __future__ import annotations

import re

import pytest
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


@pytest.mark.parametrize(
    ("page", "column", "columns", "file"),
    [
        pytest.param("docs/fabrics.md", 2, 4, named_fabric("mi300x-thor2"), id="mi300x-thor2"),
        pytest.param("docs/step-times.md", 1, 3, named_accelerator("mi300x"), id="mi300x"),
    ],
)
def test_the_numbers_of_hardware_are_those_of_its_file(
    page: str, column: int, columns: int, file: object
) -> None:
    """In its column of the table of keys, as far as that has numbers."""
    shown = {
        row[0]: number(row[column])
        for row in rows(page)
        if len(row) == columns and hasattr(file, row[0]) and row[column]
    }
    assert len(shown) >= 7
    assert shown == {key: getattr(file, key) for key in shown}


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
