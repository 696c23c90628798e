from __future__ import annotations

import os
import re
import tomllib

from source_tree import ROOT

from faults.cli.commands import COMMANDS
from faults.environment import INSTALL_LINES
from faults.machine import read_pins

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_doctor_prints_what_setup_does() -> None:
    """Two places name the versions of torch and vLLM; they must not drift apart."""
    script = (ROOT / "scripts" / "setup.sh").read_text()
    steps = re.findall(r"^install (.*)$", script, flags=re.MULTILINE)
    assert [f"pip install {step}" for step in steps[:3]] == list(INSTALL_LINES[:3])


def test_torch_and_vllm_are_in_no_dependency_list() -> None:
    """Their declared pins contradict what runs here, so no resolver may see them."""
    extras = PROJECT["optional-dependencies"].values()
    every = [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]
    names = {re.split(r"[^\w-]", line)[0].lower() for line in every}
    assert names & {"torch", "vllm"} == set()
    assert {"torch", "vllm"} & read_pins(
        (ROOT / "requirements/cpu.txt").read_text()
    ).keys() == set()


def test_scripts_are_executable() -> None:
    """A lost mode bit would break a clone, not this checkout."""
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert os.access(ROOT / "scripts" / "setup.sh", os.X_OK)


def test_the_documents_mention_every_command() -> None:
    """A command that no document names is not found by anybody."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    missing = [c.name for c in COMMANDS if not re.search(rf"faultlab {c.name}\b", text)]
    assert missing == [] or not pages
