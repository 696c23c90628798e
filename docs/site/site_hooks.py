"""Hooks of MkDocs: the repository's documents under their own paths, and the reference pages.

A page is where its file is, and whatever else pages link to (sources, scenarios, pictures) goes to
the site as it is. So every relative link works unchanged, here and in a browser of the repository.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads this file alone

from site_reference import REFERENCE  # noqa: E402

_LINK = re.compile(r"\]\(([^)\s#]+)")
_ON_SITE = re.compile(r"<!-- site: (.*?) -->", re.DOTALL)
_ELSEWHERE = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "sim/DIVERGENCE.md",
              "reproducers/README.md")  # fmt: skip


def pages() -> list[Path]:
    """Every document that a person wrote."""
    return [*(ROOT / name for name in _ELSEWHERE), *sorted((ROOT / "docs").glob("*.md"))]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages that the navigation of mkdocs.yml has no place for are listed at its end."""
    placed = str(config.nav)
    names = [page.relative_to(ROOT).as_posix() for page in pages()]
    unplaced = [name for name in names if name not in placed]
    if config.nav and unplaced:
        config.nav.append({"More": unplaced})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what MkDocs found in docs by the mirror of the repository."""
    theme = [file for file in files if file.src_dir != config.docs_dir]
    sources = dict.fromkeys([*pages(), *(to for page in pages() for to in _linked(page))])
    mirrored = [
        File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path))
        for path in sources
    ]
    written = [
        File.generated(config, f"docs/reference/{name}.md", content=text())
        for name, text in REFERENCE.items()
    ]
    return Files([*theme, *mirrored, *written])


def on_page_markdown(markdown: str, **_: object) -> str:
    """Show what a page has for the site alone, such as links to the reference, which is no file of
    the repository: ``<!-- site: ... -->``."""
    return _ON_SITE.sub(r"\1", markdown)


def _linked(page: Path) -> list[Path]:
    """The files of the repository that ``page`` links to, without pages."""
    targets = (
        (page.parent / target).resolve() for target in _LINK.findall(page.read_text("utf-8"))
    )
    return [path for path in targets if path.is_file() and path.suffix != ".md"]
