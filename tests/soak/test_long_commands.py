"""Command lines of the documents that take more than a moment."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vllm
from doc_commands import BY_OTHERS, LONG, PAGES
from doc_inline import IN_TEXT
from doc_pages import run_page, typed
from doc_sources import with_additions
from source_tree import ROOT

from faults.cli.reexec import simulation_environment

pytestmark = pytest.mark.soak
MARKED = [page for page in PAGES if "\n<!-- long -->\n" in page.read_text()]
FROM_HOWTOS = [line for line, test in BY_OTHERS.items() if test.endswith("howtos_add_works")]
TRACE = "mooncake_fast25_conversation_trace.jsonl"
ON_A_PEER, HERE = (line for line, test in BY_OTHERS.items() if test.endswith("what_another_has"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader is taken to have: files and a connector of his own, and a checkout of vLLM."""
    (tmp_path / "package").mkdir()
    connector = (ROOT / "sim" / "reference" / "connector.py").read_text()
    own = connector.replace("ReferenceConnector", "Class")
    (tmp_path / "package" / "module.py").write_text(own)
    (tmp_path / "package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    shutil.copy(ROOT / "faults" / "cli" / "scenario_template.yaml", tmp_path / "my.yaml")
    shutil.copy(ROOT / "sim" / "fabric" / "fabrics" / "cx7.toml", tmp_path / "my.toml")
    shutil.copy(ROOT / "sim" / "engine" / "accelerators" / "mi300x.toml", tmp_path / "my-gpu.toml")
    (tmp_path / "calibration").mkdir()
    shutil.copy(tmp_path / "my.toml", tmp_path / "calibration" / "fabric.toml")
    (tmp_path / "known.yaml").write_text(
        "- {group: nothing, owner: nobody, link: nowhere, expires: '2100-01-01'}\n"
    )
    connectors = Path("distributed/kv_transfer/kv_connector/v1/moriio")
    installed = Path(vllm.__file__).parent
    shutil.copytree(installed / connectors, tmp_path / "vllm" / "vllm" / connectors)
    traces = Path(os.environ.get("FAULTLAB_TRACES", ROOT.parent / "shared" / "traces"))
    for name in (TRACE, "conversation.jsonl"):
        (tmp_path / name).symlink_to(traces / TRACE)
    return tmp_path


def require_trace(line: str, home: Path) -> None:
    """Skip a line that reads the trace where there is none."""
    if "--trace" in line and not (home / TRACE).exists():
        pytest.skip(f"no {TRACE}; set FAULTLAB_TRACES to the directory that has it")


@pytest.mark.parametrize("line", LONG, ids=lambda line: line)
def test_a_command_line_ends_as_it_should(
    line: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code that the page leads one to expect."""
    require_trace(line, home)
    code, printed = typed(line, home, monkeypatch)
    assert code == LONG[line], printed


@pytest.mark.parametrize("line", IN_TEXT, ids=lambda line: line)
def test_a_command_of_running_text_ends_as_it_should(
    line: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is about a recorded run, ``...`` stands for the only one."""
    require_trace(line, home)
    wanted, before = IN_TEXT[line]
    for each in before:
        typed(each, home, monkeypatch)
    if "faultlab-runs/..." in line:
        (recorded,) = (home / "faultlab-runs").iterdir()
        line = line.replace("faultlab-runs/...", str(recorded))
    code, printed = typed(line, home, monkeypatch)
    assert code == wanted, printed


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_a_page_can_be_walked_to_its_end(
    page: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the commands that the quick tests leave out."""
    run_page(page, home, monkeypatch, long=True)


def test_what_the_howtos_add_works(tmp_path: Path) -> None:
    """The fault strikes, the model is served, and the oracle reports."""
    environment = simulation_environment({"PYTHONPATH": str(with_additions(tmp_path))})
    codes, documents = [], []
    for line in FROM_HOWTOS:
        command = [sys.executable, "-m", "faults.cli", *shlex.split(line)[1:], "--json"]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        codes.append(ran.returncode)
        documents.append(json.loads(ran.stdout))
    assert codes == [0, 0, 0, 1]
    struck = [[(f["kind"], f["strikes"]) for f in document["faults"]] for document in documents]
    assert struck[:2] == [[("message-jitter", 1)], [("throttled", 1)]]
    assert [fault["hits"] > 0 for document in documents[:2] for fault in document["faults"]] == [
        True,
        True,
    ]
    assert documents[2]["requests"]["length"] == 4
    assert "patience" in {violation["oracle"] for violation in documents[3]["violations"]}


def test_a_machine_is_told_what_another_has() -> None:
    """It is its own peer here; where a version is missing, it says which."""
    environment = simulation_environment({"PYTHONPATH": str(ROOT)})
    command = [sys.executable, "-m", "faults.cli"]
    address = shlex.split(HERE)[-1].replace("node2", "localhost")
    asked = [*command, *shlex.split(HERE)[1:-1], address, "--json"]
    told = {"found": "no answer"}
    peer = subprocess.Popen([*command, *shlex.split(ON_A_PEER)[1:]], env=environment)
    try:
        while told["found"].startswith("no answer"):
            assert peer.poll() is None
            ran = subprocess.run(asked, env=environment, capture_output=True, text=True)
            told = json.loads(ran.stdout)["checks"][-1]
    finally:
        peer.terminate()
        peer.wait()
    assert told["name"] == f"peer {address}"
    assert told["ok"] or told["found"].startswith("an answer, but this machine has no ")


def test_what_the_howto_for_faults_says_is_all_that_tests_ask_for(tmp_path: Path) -> None:
    """Its own commands pass where its lines are in their places."""
    environment = simulation_environment({"PYTHONPATH": str(with_additions(tmp_path))})
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    page = (ROOT / "docs" / "howto-fault.md").read_text()
    asked = re.findall(
        r"^    PYTHONHASHSEED=0 \.venv/bin/python (-m pytest .*)$", page, re.MULTILINE
    )
    assert len(asked) == 4
    for arguments in asked:
        command = [sys.executable, *shlex.split(arguments), "-W", "ignore"]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout
