from __future__ import annotations

import json
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import vllm

from faults.cli import doctor
from faults.cli.dispatch import run
from faults.environment import INSTALL_LINES, Check, Status, examine
from faults.machine import ENTRY_POINTS, Machine, probe, read_pins

LAPTOP = Machine(
    python=(3, 11, 7),
    installed={
        "torch": "2.13.0+cpu",
        "vllm": "0.33.0",
        "simpy": "4.1.2",
        "greenlet": "3.5.6",
        "pyzmq": "27.3.0",
    },
    pins={"pyzmq": "27.3.0"},
    hash_seed_fixed=True,
    caller_hash_seed="random",
    mori_importable=False,
    kfd="absent",
    gpus=0,
    hardware_test_files=1,
    entry_points={"faultlab command": True, "pytest plugin": True},
    memory_bytes=16 << 30,
    cores=8,
)
CLUSTER = replace(
    LAPTOP,
    python=(3, 12, 1),
    mori_importable=True,
    installed={**LAPTOP.installed, "amd-mori": "1.2.4"},
    kfd="usable",
    gpus=8,
)


def without(package: str) -> Machine:
    """Return the laptop without one package."""
    return replace(LAPTOP, installed={k: v for k, v in LAPTOP.installed.items() if k != package})


def check(machine: Machine, name: str) -> Check:
    """Return the check of that name on ``machine``."""
    (found,) = [check for check in examine(machine).checks if check.name == name]
    return found


def test_an_environment_from_before_the_pytest_plugin_is_noticed() -> None:
    """Scenario files would silently be no tests there; installing again mends it."""
    stale = replace(LAPTOP, entry_points={"faultlab command": True, "pytest plugin": False})
    found = check(stale, "entry points")
    assert found.status is Status.WARNING
    assert found.found == "not registered: pytest plugin"
    assert found.remedy == INSTALL_LINES[3]
    assert check(LAPTOP, "entry points").status is Status.OK
    assert set(ENTRY_POINTS) == set(probe().entry_points)


def test_the_entry_points_that_are_looked_for_are_those_of_the_project() -> None:
    """By group and by where they lead."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {
        "console_scripts": project["scripts"]["faultlab"],
        "pytest11": project["entry-points"]["pytest11"]["faultlab"],
    }
    for group, module in ENTRY_POINTS.values():
        assert declared[group].startswith(module)


def test_a_complete_laptop_runs_the_simulator_but_no_hardware_test() -> None:
    """No GPU and no mori is the normal case, not an obstacle to simulation."""
    diagnosis = examine(LAPTOP)
    assert diagnosis.simulator_obstacles == []
    assert diagnosis.hardware_obstacles == ["mori: not installed", "AMD GPU: /dev/kfd: absent"]


def test_a_rocm_machine_runs_both() -> None:
    """With mori, a usable GPU and tests to run, nothing stands in the way."""
    diagnosis = examine(CLUSTER)
    assert diagnosis.simulator_obstacles == []
    assert diagnosis.hardware_obstacles == []


@pytest.mark.parametrize(
    ("package", "name", "remedy"),
    [
        ("torch", "torch", INSTALL_LINES[0]),
        ("vllm", "vllm", INSTALL_LINES[1]),
        ("pyzmq", "vllm imports", INSTALL_LINES[2]),
        ("simpy", "simpy", INSTALL_LINES[3]),
        ("greenlet", "greenlet", INSTALL_LINES[3]),
    ],
)
def test_a_missing_package_stops_the_simulator_and_names_the_command_that_installs_it(
    package: str, name: str, remedy: str
) -> None:
    """Every package has its own line, to be copied as it stands."""
    machine = without(package)
    assert check(machine, name).remedy == remedy
    assert len(examine(machine).simulator_obstacles) == 1


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 13, 0)])
def test_an_unsupported_python_stops_the_simulator(version: tuple[int, int, int]) -> None:
    """3.11 and 3.12 are what results were obtained with."""
    found = check(replace(LAPTOP, python=version), "python")
    assert found.status is Status.MISSING
    assert found.remedy is not None


def test_another_vllm_is_a_warning_that_does_not_offer_to_replace_it_in_place() -> None:
    """In a ROCm container the installed build is the one that knows its GPUs."""
    machine = replace(LAPTOP, installed={**LAPTOP.installed, "vllm": "0.34.1"})
    found = check(machine, "vllm")
    assert found.status is Status.WARNING
    assert found.remedy is not None
    assert found.remedy.startswith("in a virtual environment of its own")
    assert examine(machine).simulator_obstacles == []


def test_a_gpu_without_permission_is_told_from_no_gpu() -> None:
    """The remedy differs: another group, not another machine."""
    found = check(replace(CLUSTER, kfd="no permission"), "AMD GPU")
    assert found.found == "/dev/kfd: no permission"
    assert found.remedy is not None
    assert found.remedy.startswith("start the container with")


def test_a_moved_pin_is_reported_by_name() -> None:
    """vLLM may still work with it, so the simulator is not refused."""
    machine = replace(LAPTOP, pins={"pyzmq": "27.2.0"})
    assert check(machine, "vllm imports").found == "other versions: pyzmq"
    assert examine(machine).simulator_obstacles == []


def test_pins_are_read_past_comments_and_blanks() -> None:
    """Only ``name==version`` counts."""
    text = "# torch==1\n\naiohttp==3.14.5\nmsgpack==1.2.4     # a connector\n"
    assert read_pins(text) == {"aiohttp": "3.14.5", "msgpack": "1.2.4"}


def test_probing_finds_this_machine() -> None:
    """The facts are of this process, and torch's version comes without importing torch."""
    machine = probe()
    assert machine.python == sys.version_info[:3]
    assert machine.installed["torch"].startswith("2.13.0")
    assert machine.pins["msgpack"] == machine.installed["msgpack"]
    assert machine.cores >= 1
    assert machine.memory_bytes > 1 << 28


@pytest.mark.parametrize(("machine", "code"), [(LAPTOP, 0), (without("torch"), 2)])
def test_json_is_one_versioned_document_and_the_exit_code_says_whether_the_simulator_runs(
    machine: Machine,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Scripts read ``simulator.runs`` or the exit code."""
    monkeypatch.setattr(doctor, "probe", lambda: machine)
    assert run(["doctor", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["simulator"]["runs"] is (code == 0)
    assert document["install"] == list(INSTALL_LINES)


def test_people_see_the_install_lines_only_when_something_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A complete machine is not told to install anything."""
    monkeypatch.setattr(doctor, "probe", lambda: without("vllm"))
    run(["doctor"])
    incomplete = capsys.readouterr().out
    monkeypatch.setattr(doctor, "probe", lambda: LAPTOP)
    run(["doctor"])
    complete = capsys.readouterr().out
    assert all(line in incomplete for line in INSTALL_LINES)
    assert "pip install --no-deps" not in complete
    assert "simulator: will run here" in complete


def test_the_cost_of_an_out_of_tree_connector_is_said_and_is_what_vllm_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In both forms; vLLM's runtime asks for a connector's name, its role, and no module path."""
    run(["doctor"])
    people = capsys.readouterr().out
    run(["doctor", "--json"])
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert "beside KV transfer only on a consumer with MoRIIOConnector, by that name" in note
    assert f"connectors: {note}" in people
    assert vllm.__file__ is not None
    runtime = Path(vllm.__file__).parent / "models/kimi_k3/amd/specialized_decode/runtime"
    source = (runtime / "__init__.py").read_text()
    assert "kv.kv_connector_module_path is not None" in source
    assert 'kv.kv_connector != "MoRIIOConnector"' in source
    assert 'kv.kv_role != "kv_consumer"' in source
