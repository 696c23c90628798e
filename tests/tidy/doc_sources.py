"""A copy of the sources with what the how-to pages add to them."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

from doc_pages import files
from source_tree import ROOT

HOWTOS = [ROOT / "docs" / f"howto-{what}.md" for what in ("fault", "oracle", "model")]
_INSERT = re.compile(
    r"^<!-- insert into (?P<file>\S+) after: (?P<line>[^\n]+) -->\n```\w+\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def with_additions(directory: Path) -> Path:
    """``directory``, with the packages as somebody has them who has followed the how-to pages."""
    for package in ("faults", "sim", "connector", "hw_tests", "tests", "docs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, directory / package, ignore=ignored)
    for page in HOWTOS:
        for name, text in files(page).items():
            assert not (directory / name).exists(), f"{name} is there already"
            (directory / name).write_text(text)
        for found in _INSERT.finditer(page.read_text()):
            target, line = directory / found["file"], f"{found['line'].rstrip()}\n"
            source = target.read_text()
            assert source.count(line) == 1, f"{page.name}: {line}"
            longer = source.replace(line, f"{line}{found['text']}")
            assert target.suffix != ".py" or ast.parse(longer)
            target.write_text(longer)
    return directory
