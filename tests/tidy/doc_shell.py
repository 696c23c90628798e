"""Which test runs each command line of the documents that is not faultlab's, or what it needs.

A line is known by its program and arguments, without settings and folder: ``python -m pytest`` for
``PYTHONHASHSEED=0 .venv/bin/python -m pytest``. ``...`` at the end of a key stands for the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from doc_commands import Line

Need = Literal["GPU", "docker", "engines", "hosts"]


class Needs(NamedTuple):
    """Why a line cannot be run here, and the test that runs the same on what there is here."""

    what: Need
    instead: str


QUICK = (
    "python -m hw_tests.router --help",
    "python -m hw_tests.cluster --way ssh --producer node1 --consumer node2 --print",
    "python -m hw_tests.cluster --way ssh --producer node1 --consumer node2 "
    "--inside 'docker exec -i faultlab' --directory /faultlab --python python3 --print",
    "python - $CUT/config.json <<'EOF'",
)
"""Run by ``tests/scenario/test_docs.py``."""

SOAK = (
    "make lint",
    "make format",
    "make docs",
    "python -m pytest -x -q tests/unit/test_kernel.py",
    "python -m pytest -q -s tests/scenario/test_connector_first_token.py",
    "python -m pytest -q -s tests/unit/test_connector_protocol.py",
    "python -m pytest -q tests/unit/test_protocol_joint.py",
)
"""Run by ``tests/soak/test_shell_lines.py``, in a copy of the sources."""

_HOWTO = (
    "tests/soak/test_long_commands.py::"
    "test_what_the_howto_for_faults_says_is_all_that_tests_ask_for"
)
_BUNDLE = "tests/soak/test_bundle_offline.py::test_a_bundle_installs_and_runs_without_a_network"
_GUARD = "tests/unit/test_bench_against.py::test_the_command_measures_two_checkouts_in_turns"
ELSEWHERE = {
    "git worktree add --detach ../before origin/main": _GUARD,
    "make guard AGAINST=../before": _GUARD,
    "pip install torch==2.13.0": "make setup",
    "pip install --no-deps vllm==0.33.0": "make setup",
    "pip install --no-deps -r requirements/cpu.txt": "make setup",
    "pip install -e .": "make setup",
    "make soak": "make soak",
    "pytest reproducers": "tests/scenario/test_reproducers.py",
    "pytest hw_tests": "make test",
    "pytest hw_tests -k process": "make test",
    "pytest hw_tests --arm mori-cpu -n 2": "make test",
    "python -m pytest -q -s -m soak tests/soak/test_protocol_searches.py": "make soak",
    "python -m pytest -q -m soak tests/soak/test_all_hits.py": "make soak",
    "python -m pytest -q -s -m soak tests/soak/test_million_odd_inputs.py": "make soak",
    "python -m pytest -q tests/unit/test_fault_kinds.py tests/tidy/test_tidy_cells.py": _HOWTO,
    "python -m pytest -q tests/scenario/test_coverage_items.py -k left_out": _HOWTO,
    "python -m pytest -q -m soak tests/soak/test_all_cells.py -k message-jitter": _HOWTO,
    "python -m pytest -q tests/scenario/test_coverage_cells.py -k throttled": _HOWTO,
    "python -m hw_tests.router --port 8080 --ping-port 36367": (
        "tests/unit/test_shipped_router_command.py::"
        "test_engines_of_either_connector_announce_themselves_and_are_used"
    ),
    "python -m hw_tests.router --port 8080 --prefill ...": (
        "tests/unit/test_load.py::test_a_producer_killed_under_load"
    ),
    "sha256sum -c faultlab-COMMIT.tar.sha256 && tar xf faultlab-COMMIT.tar ...": _BUNDLE,
    "./install.sh": _BUNDLE,
    "source venv/bin/activate && cd source": _BUNDLE,
}
"""Run by the target or the test that is named, with free ports and folders of its own."""

_SERVED = "tests/scenario/test_shipped_router_legs.py"
_TWO_HOSTS = "tests/soak/test_cluster_runs.py::test_a_run_passes_and_leaves_a_report_and_no_process"
NEEDS = {
    "docker run ...": Needs("docker", "tests/tidy/test_tidy_dockerfile.py"),
    "pytest hw_tests --arm rocm": Needs("GPU", "tests/contract/test_rocm_arm.py"),
    "pytest hw_tests --arm rocm -k process": Needs("GPU", "tests/contract/test_rocm_arm.py"),
    "python -m hw_tests.calibration --arm rocm ...": Needs("GPU", "hw_tests/test_calibration.py"),
    "python -m hw_tests.cluster --suite first": Needs("GPU", _TWO_HOSTS),
    "python -m hw_tests.cluster --way ssh --producer node1 --consumer node2": Needs(
        "hosts", "tests/soak/test_cluster_sshd.py"
    ),
    "python -m hw_tests.cluster --way ssh --producer node1 --consumer node2 --suite ...": Needs(
        "hosts", "tests/soak/test_cluster_runs.py::test_a_model_is_served_on_two_hosts"
    ),
    "python -m hw_tests.cluster --way srun ...": Needs("hosts", _TWO_HOSTS),
    "python -m hw_tests.cluster --way hand ...": Needs("hosts", "tests/unit/test_cluster_hosts.py"),
    "export VLLM_SSM_CONV_STATE_LAYOUT=DS": Needs("engines", _SERVED),
    "vllm serve ...": Needs("GPU", _SERVED),
    "curl 10.0.0.3:8080/v1/completions ...": Needs("engines", "tests/unit/test_shipped_router.py"),
    "curl -s ...": Needs(
        "engines",
        "tests/unit/test_connector_metrics.py::test_what_the_page_greps_for_is_exported",
    ),
    "python -m hw_tests.recall ...": Needs("engines", "tests/unit/test_recall.py"),
    "python -m hw_tests.load ...": Needs("engines", "tests/unit/test_load.py"),
}
"""What nobody has run as it stands; where it has a parser, a test has that read it."""

TARGETS = {
    "help": "tests/soak/test_shell_lines.py",
    "setup": ".ci/run",
    "test": ".ci/run",
    "lint": "tests/soak/test_shell_lines.py",
    "format": "tests/soak/test_shell_lines.py",
    "docs": "tests/soak/test_shell_lines.py",
    "requirements": "tests/soak/test_shell_lines.py",
    "demo": "tests/soak/test_shell_lines.py",
    "guard": "tests/unit/test_bench_guard.py",
    "bench": "tests/unit/test_bench.py",
    "mori": "tests/contract/test_mori_cpu.py",
    "bundle": "tests/soak/test_bundle_offline.py",
    "soak": "a person, when there is time for it (docs/soak.md)",
}
"""What runs each target of the Makefile, or the command that it consists of."""


def command(line: Line) -> str:
    """The line as the tables know it."""
    words = re.sub(r"^(?:\w+=\S+ )+", "", line.text)
    return re.sub(r"^\S*/bin/", "", words)


def keys(line: Line) -> list[str]:
    """The entries of the tables that a line falls under."""
    told = command(line)
    tables = [*QUICK, *SOAK, *ELSEWHERE, *NEEDS]
    return [key for key in tables if _is_of(key, told)]


def _is_of(key: str, told: str) -> bool:
    return told.startswith(key.removesuffix("...")) if key.endswith("...") else told == key


def run_in_shell(script: str, directory: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a command line in ``directory``, where this interpreter is on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(directory), **settings},
        capture_output=True,
        text=True,
        check=False,
    )
