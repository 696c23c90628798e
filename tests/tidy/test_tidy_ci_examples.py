"""The files in examples/ci say only what CI systems and the command line understand."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from doc_commands import commands_in, parse
from source_tree import ROOT, name

FILES = sorted((ROOT / "examples" / "ci").glob("*.yml"))


def scripts(node: Any) -> Iterator[str]:
    """What a shell gets: the texts below ``run`` (GitHub) and ``command`` (Buildkite)."""
    if isinstance(node, list):
        for item in node:
            yield from scripts(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "command"):
                texts = value if isinstance(value, list) else [value]
                yield from (text.replace("$$", "$") for text in texts)
            else:
                yield from scripts(value)


def commands(path: Path) -> list[list[str]]:
    """The arguments of every command line of faultlab, with a number for each variable."""
    found = []
    for script in scripts(yaml.safe_load(path.read_text())):
        block = "\n".join(line.strip() for line in script.splitlines())
        for line in (line for line in commands_in(block) if line.startswith("faultlab ")):
            line = re.split(r" (?:\|\||&&|>) ", line)[0]
            words = re.sub(r"\$\{?\w+\}?", "1", line).replace('"', "").split()
            found.append(words[1:])
    return found


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_shell_reads_every_script(path: Path) -> None:
    """The file is YAML, and what is in it for a shell has no mistake of syntax."""
    found = list(scripts(yaml.safe_load(path.read_text())))
    assert found
    for script in found:
        ran = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("path", FILES, ids=name)
def test_the_parser_accepts_what_they_run(path: Path) -> None:
    """They compare, with known defects and JUnit, and report; every option exists."""
    found = commands(path)
    for arguments in found:
        parse(arguments)
    compare = next(words for words in found if words[0] == "compare")
    assert {"--before-overlay", "--overlay", "--known", "--junit", "--out"} <= set(compare)
    assert any(words[0] == "report" for words in found)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_what_they_write_is_uploaded(path: Path) -> None:
    """The report, the test cases and the failing runs."""
    text = path.read_text()
    _, _, uploads = text.partition(
        "upload-artifact" if "upload-artifact" in text else "artifact_paths"
    )
    for kept in ("comparison.html", "faultlab.xml", "comparison"):
        assert kept in uploads


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_fork_without_known_defects_gets_an_empty_file(path: Path) -> None:
    """Before each script that excuses groups, or in it: an absent file is refused."""
    found = list(scripts(yaml.safe_load(path.read_text())))
    if path.stem == "github-actions":  # whose steps share a machine
        found = ["\n".join(found)]
    excusing = [script for script in found if "--known" in script]
    assert excusing
    for script in excusing:
        before, _, after = script.partition("--known ")
        assert f"touch {after.split()[0]}\n" in before, script


@pytest.mark.parametrize("path", FILES, ids=name)
def test_shards_are_put_together(path: Path) -> None:
    """Each shard sees its own seeds only."""
    found = commands(path)
    is_divided = any("--shard" in words for words in found)
    assert any(words[0] == "merge" for words in found) == is_divided


def test_a_mistake_in_a_script_is_noticed() -> None:
    """The shell's check fails where a quote is missing."""
    ran = subprocess.run(
        ["bash", "-n"], input='faultlab run "a', capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0
    assert len(FILES) == 2
