"""What a reader would see of a page, found out in the page itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chromium import Tab, tab

SCHEMES = {"light": 255, "dark": 20}
"""Each with how bright the ground of a page is, in its red."""
WIDTHS = (1280, 1000, 400)

_SURVEY = Path(__file__).with_suffix(".js").read_text()


@dataclass(frozen=True)
class View:
    """A page as one reader has it; ``seen`` is what page_survey.js returns."""

    scheme: str
    width: int
    seen: dict[str, Any]

    def faults(self) -> list[str]:
        """What is wrong with it, in words."""
        wide = self.seen["pageWidth"]
        found = [f"the page is {wide} pixels wide"] if wide > self.width else []
        found += [f"cut off: {text}" for text in self.seen["cut"]]
        if self.width == max(WIDTHS):  # else a drawing may have to be scrolled
            found += [f"hidden: {text}" for text in self.seen["hidden"]]
        found += [f"wrapped: {text}" for text in self.seen["wrapped"]]
        found += [
            f"contrast {text['contrast']:.1f}, {text['colours']}: {text['text']}"
            for text in self.seen["texts"]
            if text["contrast"] < 4.5  # WCAG 2.2, level AA
        ]
        return [f"{self.scheme}, {self.width} pixels: {words}" for words in found]


@dataclass(frozen=True)
class Survey:
    """A page as every reader has it, and what the browser said meanwhile."""

    views: list[View]
    requests: list[str]
    complaints: list[dict[str, Any]]

    def faults(self) -> list[str]:
        """Of all views."""
        return [fault for view in self.views for fault in view.faults()]


async def survey(files: list[Path]) -> dict[Path, Survey]:
    """Each page in either colour scheme at either width, with all that can be unfolded open."""
    async with tab() as page:
        return {file: await _survey(page, file) for file in files}


async def _survey(page: Tab, file: Path) -> Survey:
    await page.open(file)
    views = []
    for scheme in SCHEMES:
        for width in WIDTHS:
            await page.show(scheme=scheme, width=width)
            views.append(View(scheme, width, await page.evaluate(_SURVEY)))
    return Survey(views, page.requests(), page.complaints())
