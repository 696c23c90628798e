from __future__ import annotations

import re
from pathlib import Path

import pytest
from source_tree import name, text_files

FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.])/(?:work|tmp|root|home|Users|opt|mnt)/\w",
    "an unfinished mark": r"\b(?:TODO|FIXME|XXX|HACK)\b",
    "a number of this project's tracker": (
        r"(?i)(?:\bissues?|\btickets?|\bbugs?|\bpr|\bfixes|\bcloses|\bsee|\()\s*#\d+"
    ),
    "the address of a package registry": r"(?i)pythonhosted|pypi\.org|(?:extra-)?index-url",
}
# The files that have to spell out what is forbidden or legally required, and nothing else.
EXEMPT = {"LICENSE", name(Path(__file__))}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_contains_words_that_mean_nothing_to_its_readers(what: str) -> None:
    """The project speaks of itself only, is finished where it stands, and names no host."""
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{name(path)}:{number}: {line.strip()[:80]}"
        for path in text_files()
        if name(path) not in EXEMPT
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "open('/home/me/trace.jsonl')"),
        ("an unfinished mark", "# TODO: later"),
        ("a number of this project's tracker", "Fixes #12"),
        ("a number of this project's tracker", "as agreed (#7)"),
        ("the address of a package registry", "pip install --index-url X"),
    ],
)
def test_a_forbidden_word_is_recognised(what: str, line: str) -> None:
    """Each pattern matches the mistake it is there for."""
    assert re.search(FORBIDDEN[what], line)


@pytest.mark.parametrize("line", ["vllm-project/vllm#1234", "a NIC issues 64 reads", "see a/tmp/b"])
def test_an_innocent_line_is_not_taken_for_a_forbidden_one(line: str) -> None:
    """Other projects' reports, plain English and relative paths are fine."""
    assert not any(re.search(pattern, line) for pattern in FORBIDDEN.values())
