"""The documents as a site: complete, without a broken link, and without the network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from doc_commands import PAGES
from mkdocs.commands.build import build
from mkdocs.config import load_config
from source_tree import ROOT

from faults import public
from faults.cli.commands import COMMANDS
from faults.kinds import KINDS
from sim.model.presets import PRESETS
from sim.oracles import ORACLES
from sim.scenario import Scenario

_LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class Loaded(HTMLParser):
    """The addresses that a browser asks for when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_LOADING.get(tag, ""))
        if address is not None:
            self.addresses.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as by ``make docs``: strict, so a broken link or anchor raises here."""
    directory = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(directory)))
    return directory


def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    """Neither fonts nor scripts nor pictures, so it can be read anywhere."""
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert loaded.addresses
        assert [a for a in loaded.addresses if re.match(r"(?:\w+:)?//", a)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text())


def test_every_document_is_a_page(site: Path) -> None:
    """The README is the first."""
    assert "found in 65 virtual seconds" in " ".join((site / "index.html").read_text().split())
    for page in PAGES:
        if page.parent == ROOT / "docs":
            assert (site / "docs" / f"{page.stem}.html").is_file(), page


def test_the_reference_has_everything_there_is(site: Path) -> None:
    """Commands with their options, the library, kinds of fault, oracles, models, and the schema."""

    def text(page: str) -> str:
        return (site / "docs" / "reference" / f"{page}.html").read_text()

    for page, names in (
        ("command-line", [f"faultlab {command.name}" for command in COMMANDS]),
        ("command-line", ["--before-overlay", "--extra-config", "--max-runs"]),
        ("python", ["campaign", "load", "run", *public.__all__]),
        ("faults", KINDS),
        ("oracles", ORACLES),
        ("models", PRESETS),
        ("schema", Scenario.__struct_fields__),
    ):
        shown = text(page)
        assert [name for name in names if name not in shown] == []
    assert "Usage: faultlab run" in text("command-line")
    assert [page for page in site.rglob("*.html") if "Usage: mkdocs" in page.read_text()] == []


def test_pages_lead_to_the_reference_that_belongs_to_them(site: Path) -> None:
    """Which is on the site alone, so the link is too."""
    for page, reference in (
        ("library", "python"),
        ("faults", "faults"),
        ("violations", "oracles"),
        ("scenarios", "schema"),
    ):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        assert "<!-- site: " in text
        shown = (site / "docs" / f"{page}.html").read_text().partition("<article")[2]
        assert f'href="reference/{reference}.html"' in shown, page


def test_links_lead_to_files(site: Path) -> None:
    """A browser that opened a file, without a server, shows a directory as a list of files."""
    for page in set(site.rglob("*.html")) - {site / "404.html"}:  # which only servers show
        links = re.findall(r'<a [^>]*href="([^"#?]+)', page.read_text())
        here = [page.parent / link for link in links if not re.match(r"\w+:", link)]
        assert here
        assert [str(target) for target in here if not target.is_file()] == [], page
