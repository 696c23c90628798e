"""Scenario files are tests for whoever has faultlab installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PASSES = """
connector: reference
quiet_phase_s: 1.0
workload: {kind: uniform, requests: 2, prompt_tokens: [40, 60], output_tokens: [2, 3]}
"""
LOSES_A_HAND_OFF = """
connector: moriio
quiet_phase_s: 1.0
engine: {num_blocks: 129}
workload:
  kind: inline
  requests:
    - {request_id: lost, prompt: [[1, 64]], max_tokens: 2}
faults:
  - {kind: hand-off-lost, target: {request: lost}}
"""

OF_SOMEBODY = """
import pytest
from faults import InlineRequest, InlineWorkload, Scenario, UniformWorkload, with_faults

SMALL = UniformWorkload(requests=2, prompt_tokens=(40, 60), output_tokens=(2, 3))
LOST = InlineWorkload((InlineRequest("lost", ((1, 64),), max_tokens=2),))

def test_that_passes(faultlab):
    ran = faultlab(Scenario(connector="example", workload=SMALL, quiet_phase_s=1.0))
    assert ran.outcome.requests["length"] == 2
    assert ran.outcome.scenario["connector"] == "moriio"

def test_that_loses_a_hand_off(faultlab):
    scenario = Scenario(workload=LOST, quiet_phase_s=1.0)
    faultlab(with_faults(scenario, ["hand-off-lost:request=lost"]))

def test_a_file(faultlab):
    faultlab("wrong.scenario.yaml")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test directory of somebody else; the plugin is named, so that it is there once, installed
    or not. The caller's hash seed is not the one that runs need."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    for of_ci in ("CI", "BUILD_NUMBER"):  # with them pytest says everything twice
        monkeypatch.delenv(of_ci, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makefile(".scenario.yaml", good=PASSES, bad=LOSES_A_HAND_OFF, wrong="modle: llama\n")
    pytester.makepyfile(test_mine=OF_SOMEBODY)
    pytester.makefile(".yaml", other="nothing: of this\n")
    return pytester


def test_scenario_files_are_collected_as_tests(suite: pytest.Pytester) -> None:
    """By their names; other YAML files are nobody's business."""
    result = suite.runpytest_subprocess("-p", "faults.pytest_plugin", "--collect-only", "-q")
    result.stdout.fnmatch_lines(
        ["bad.scenario.yaml::run", "good.scenario.yaml::run", "wrong.scenario.yaml::run"]
    )
    result.stdout.no_fnmatch_line("*other.yaml*")


def test_a_broken_rule_is_a_failed_test_with_its_story(suite: pytest.Pytester) -> None:
    """The output has what was found, and the line that runs it again; a file that is no scenario
    fails with the key that is wrong, and the one that passes passes. So it is for scenarios that a
    test gives to the fixture. The connector of the command line is that of all of them."""
    result = suite.runpytest_subprocess(
        "-p", "faults.pytest_plugin", "--faultlab-connector", "moriio"
    )
    result.assert_outcomes(passed=2, failed=4)
    output = result.stdout.str()
    assert re.search(r"FAILED bad\.scenario\.yaml::run - violation: \S*leak", output)
    replay = re.search(r"faultlab replay (\S+)", output)
    assert replay is not None
    assert (suite.path / replay[1] / "scenario.yaml").is_file()
    assert "how it came about" in output
    assert output.count("fault hand-off-lost has struck, for lost") == 2
    assert output.count("did you mean 'model'") == 2
    assert "Traceback" not in output
    assert "pytest_plugin.py" not in output


def test_the_plugin_is_an_entry_point() -> None:
    """So nobody has to name it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"faultlab": "faults.pytest_plugin"}
