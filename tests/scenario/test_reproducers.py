"""Plain pytests for vLLM alone fail for the reasons that the findings give, and only for them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPRODUCERS = ROOT / "reproducers"
FAILURES = {
    "test_blocks_of_an_offer_are_held_or_the_consumer_is_told[65]": "which hold another request's",
    "test_the_window_of_the_last_prompt_token_is_handed_over[207]": "gave up its block 8",
    "test_a_state_is_loaded_before_the_pass_that_needs_it[49]": "before the state that it starts",
    "test_no_token_of_a_failed_load_is_delivered[asynchronous]": "666 was sampled from KV",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The message of each test case; empty if it passed."""
    report = tmp_path_factory.mktemp("reproducers") / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "-c", os.devnull, "--rootdir", ".", f"--junitxml={report}", "."],
        cwd=REPRODUCERS,
        check=False,
        capture_output=True,
        timeout=300,
    )
    return {
        case.get("name", ""): "".join(
            part.get("message", "") for part in case if part.tag in ("failure", "error")
        )
        for case in ET.parse(report).iter("testcase")
    }


@pytest.mark.parametrize("case", sorted(FAILURES))
def test_a_finding_is_a_failure_of_vllm_alone(outcomes: dict[str, str], case: str) -> None:
    assert FAILURES[case] in outcomes[case]


def test_the_neighbouring_cases_pass(outcomes: dict[str, str]) -> None:
    assert len(outcomes) > 2 * len(FAILURES)
    assert {case for case, message in outcomes.items() if message} == set(FAILURES)


def test_they_import_nothing_of_this_project() -> None:
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    for path in REPRODUCERS.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not ours & {str(name).split(".")[0] for name in names}, path
