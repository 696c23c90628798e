from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from chromium import PROGRAM
from page_survey import SCHEMES, WIDTHS, Survey, survey
from report_world import FAILING, campaign

from faults import artifact
from faults.campaign.result import Failure, SeedResult
from faults.campaign.store import RESULTS_FILE
from faults.cli import dispatch
from faults.cli.outcome import ExitCode
from faults.directories import FAILURES
from faults.report import campaign_page, comparison_page, run_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed")

_MANY = 10_000
_BAD = """<!DOCTYPE html><html><body style="background: white"><script>nothing()</script>
<img src="gone.png"><p style="color: #bbb; width: 2000px">faint and wide</p>
<svg viewBox="0 0 20 20" width="20" height="20"><text y="15">longer than that</text></svg>
<div class="scroll" style="width: 30px; overflow: hidden"><svg viewBox="0 0 300 20" width="300">
<text y="15">behind the edge</text></svg></div>
<pre class="command" style="width: 90px; overflow-x: auto">faultlab campaign --seeds 9</pre>
<table class="grid"><tr><th style="width: 9px">such as</th></tr></table></body>
"""


@pytest.fixture(scope="module")
def surveys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Survey]:
    """Four pages as a browser shows them, by name."""
    directory = tmp_path_factory.mktemp("pages")
    night, other = campaign(directory / "night", _MANY), campaign(directory / "other", 50, "hybrid")
    kept = night / FAILURES / "seed-10000"
    assert dispatch.run([*FAILING, "--out", str(kept)]) == ExitCode.VIOLATION
    failure = Failure("use-after-free/d0", "use-after-free", "a kept run")
    failed = SeedResult(seed=_MANY, status="failed", failures=[failure], artifact=str(kept))
    with (night / RESULTS_FILE).open("ab") as file:
        file.write(msgspec.json.encode(failed) + b"\n")
    pages = {
        "run": run_page(kept, artifact.read_records(kept, artifact.read_outcome(kept))),
        "campaign": campaign_page(night),
        "comparison": comparison_page(night, other),
        "bad": _BAD,
    }
    files = {name: directory / f"{name}.html" for name in pages}
    for name, file in files.items():
        file.write_text(pages[name], encoding="utf-8")
    seen = asyncio.run(survey(list(files.values())))
    return {name: seen[file] for name, file in files.items()}


@pytest.mark.parametrize("name", ["run", "campaign", "comparison"])
def test_a_page_can_be_read_by_everybody(surveys: dict[str, Survey], name: str) -> None:
    """Light or dark, wide or narrow: no text is faint or cut off, and nothing but a part of the
    page has to be scrolled sideways. The browser asks for nothing else, and has no complaint."""
    page = surveys[name]
    assert [(view.scheme, view.width) for view in page.views] == [
        (scheme, width) for scheme in SCHEMES for width in WIDTHS
    ]
    assert page.faults() == []
    assert all(len(view.seen["texts"]) > 3 for view in page.views)
    assert [view.seen["ground"][0] for view in page.views] == [
        brightness for brightness in SCHEMES.values() for _ in WIDTHS
    ]
    assert [Path(address).name for address in page.requests] == [f"{name}.html"]
    assert page.complaints == []


@pytest.mark.parametrize("name", ["run", "campaign"])
def test_a_violation_is_a_red_cross_and_its_transfer_is_red(
    surveys: dict[str, Survey], name: str
) -> None:
    """Also where the run is one of ten thousand."""
    for view in surveys[name].views:
        crosses, transfers = view.seen["crosses"], view.seen["wrongTransfers"]
        assert len(crosses) >= 3  # wrong bytes, their use, and the other output
        assert len(transfers) == 1
        assert all(red > 1.5 * max(green, blue) for red, green, blue in crosses + transfers)


def test_what_is_wrong_with_a_page_is_seen(surveys: dict[str, Survey]) -> None:
    """Each of the faults that the other pages do not have."""
    page = surveys["bad"]
    words = " ".join(page.faults())
    for told in (
        "pixels wide",
        "contrast 1.9",
        "cut off: longer than that",
        "cut off: faultlab",
        "wrapped: such as",
        "hidden: behind the edge",
    ):
        assert told in words
    assert [Path(address).name for address in page.requests] == ["bad.html", "gone.png"]
    assert len(page.complaints) >= 2
