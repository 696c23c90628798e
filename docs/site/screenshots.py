"""Takes the pictures of reports that the documents show, with headless Chromium.

``screenshots.py PAGE.html FIRST LAST SCHEME PICTURE.png``: of the sections with the headings FIRST
to LAST, as a reader with the colour scheme (``light`` or ``dark``) sees them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "unit"))
from chromium import tab

_WIDTH = 1340  # pixels: nothing in a report has to be scrolled sideways
_COLOURS = 256
_PLACE = """(([first, last]) => {
  const headings = [...document.querySelectorAll("h2, h3")];
  const find = text => headings.findIndex(heading => heading.textContent.trim() === text);
  const edge = element => element.getBoundingClientRect().top + scrollY;
  const begin = headings[find(first)], end = headings[find(last) + 1];
  const y = edge(begin) - 8;
  return {y, height: (end ? edge(end) : document.body.scrollHeight) - y - 8};
})"""


async def _take(page: Path, sections: tuple[str, str], scheme: str, picture: Path) -> None:
    async with tab() as browser:
        await browser.show(scheme=scheme, width=_WIDTH)
        await browser.open(page)
        place = await browser.evaluate(f"{_PLACE}({json.dumps(sections)})")
        clip = {"x": 0, "width": _WIDTH, "scale": 1, **place}
        taken = await browser.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    whole = Image.open(BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
    whole.quantize(_COLOURS, Image.Quantize.MAXCOVERAGE).save(picture, optimize=True)


def main(page: str, first: str, last: str, scheme: str, picture: str) -> None:
    """Take one picture."""
    asyncio.run(_take(Path(page), (first, last), scheme, Path(picture)))


if __name__ == "__main__":
    main(*sys.argv[1:])
