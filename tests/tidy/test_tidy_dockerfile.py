"""The Dockerfile, as far as it can be checked without docker."""

from __future__ import annotations

import re
import shlex
import tomllib
from fnmatch import fnmatch

import pytest
from source_tree import ROOT

from faults.environment import VLLM
from hw_tests.cluster.__main__ import main
from hw_tests.preflight import CHECKS

_TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
STEPS = [
    (line.split(maxsplit=1)[0], line.split(maxsplit=1)[1])
    for line in _TEXT.splitlines()
    if line.strip() and not line.startswith("#")
]
COPIED = [name for step, rest in STEPS if step == "COPY" for name in rest.split()[:-1]]
ENVIRONMENT = dict(rest.split("=") for step, rest in STEPS if step == "ENV")
PAGE = (ROOT / "docs/hardware.md").read_text()
KEPT = ("torch", "vllm", "amd-mori", "mori", "triton", "numpy")


def installs() -> list[list[str]]:
    """Arguments of everything that installs something."""
    commands = [rest for step, rest in STEPS if step == "RUN"]
    parts = [shlex.split(part) for command in commands for part in command.split("&&")]
    return [part for part in parts if "install" in part or "overlay_venv.sh" in part[0]]


def test_everything_that_is_copied_exists_and_gets_to_the_builder() -> None:
    """Of this tree, and not left out by .dockerignore."""
    assert COPIED
    assert [name for name in COPIED if not (ROOT / name).exists()] == []
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    assert [name for name in COPIED if name not in kept] == []


def test_every_package_of_the_project_is_copied() -> None:
    """And what its build reads; a package that is added has to be added there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    wanted = {name for name in packages if any(fnmatch(name, each) for each in patterns)}
    assert wanted | set(project["project"]["license-files"]) <= set(COPIED)


def test_the_images_packages_stay() -> None:
    """All that is installed goes to an environment of its own, and none of it is the image's."""
    ((script, python, venv, *arguments),) = installs()
    assert (script, python) == ("scripts/overlay_venv.sh", "python3")
    assert ("PATH", f"{venv}/bin:${{PATH}}") in ENVIRONMENT.items()
    names = {re.split(r"[^\w.-]", each)[0].lower() for each in arguments}
    assert names.isdisjoint(KEPT)


def test_the_image_is_that_of_the_vllm_that_is_supported() -> None:
    """Name and tag can be given, and what stands there is what the preflight asks for."""
    arguments = dict(rest.split("=") for step, rest in STEPS if step == "ARG")
    assert arguments == {"IMAGE": "vllm/vllm-openai-rocm", "TAG": f"v{VLLM}"}
    assert ("FROM", "${IMAGE}:${TAG}") in STEPS


@pytest.mark.parametrize("module", ["connector.hybrid", "hw_tests.cluster.supervisor"])
def test_what_vllm_and_the_launcher_import_is_where_they_look(module: str) -> None:
    """PYTHONPATH is the folder into which the packages are copied."""
    folder = ENVIRONMENT["PYTHONPATH"]
    assert ("WORKDIR", folder) in STEPS
    package = module.partition(".")[0]
    assert ("COPY", f"{package} {package}") in STEPS
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()


def test_what_is_typed_to_start_it_gives_it_all_that_the_preflight_asks_for() -> None:
    """And one that is entered by hand keeps the results of the default ``--out``."""
    by_hand, on_two_hosts = re.findall(
        r"^ +docker run .*$", PAGE.replace("\\\n", " "), re.MULTILINE
    )
    asked = {
        word
        for check in CHECKS
        for word in re.findall(r"--(?:device|network|ulimit)[= ]\S+?(?=[\s,;]|$)", check.remedy)
    }
    assert len(asked) > 4
    for typed in (by_hand, on_two_hosts):
        assert [word for word in asked if f" {word} " not in typed] == []
        assert "--group-add=$(getent group render | cut -d: -f3) " in typed
    folder = ENVIRONMENT["PYTHONPATH"]
    assert f"--volume $PWD/hw-results:{folder}/hw-results " in by_hand


def test_what_is_printed_to_enter_a_container_is_what_the_page_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """But for what the page leaves out."""
    section = PAGE.split("### Docker on two hosts")[1].split("\n### ")[0]
    command = section.split("    python -m hw_tests.cluster ")[1].split("\n\n")[0]
    assert main(shlex.split(command.replace("\\\n", " "))) == 0
    (shown,) = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    pattern = re.escape(shown).replace(re.escape("..."), ".*")
    assert re.search(f"^{pattern}", capsys.readouterr().out, re.MULTILINE)
