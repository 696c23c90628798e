"""Headless Chromium for tests of pages: started once, and driven over the DevTools protocol."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--remote-debugging-port=0",
)  # fmt: skip
_PORT_FILE = "DevToolsActivePort"
_PATIENCE_S = 30.0


class Tab:
    """One page of the browser. ``events`` are all that it has told, by method."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket, self._session = socket, session
        self._number = 0
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a DevTools command; AssertionError if it is an error."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json({**message, "sessionId": self._session})
        while (told := await self._next()).get("id") != self._number:
            pass
        assert "error" not in told, (method, told["error"])
        answer: dict[str, Any] = told["result"]
        return answer

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def open(self, file: Path) -> None:
        """Show ``file``; returns when it is there."""
        self.events.clear()
        await self.ask("Page.navigate", url=file.absolute().as_uri())
        while not any(method == "Page.loadEventFired" for method, _ in self.events):
            await self._next()

    async def show(self, *, scheme: str, width: int) -> None:
        """As a reader with that ``prefers-color-scheme`` and a window of ``width`` pixels."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.ask("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self.ask("Emulation.setDeviceMetricsOverride", **size)

    def requests(self) -> list[str]:
        """Addresses that were asked for, the page's own among them."""
        sent = [told for method, told in self.events if method == "Network.requestWillBeSent"]
        return [told["request"]["url"] for told in sent]

    def complaints(self) -> list[dict[str, Any]]:
        """Errors, warnings, and whatever else the console was told."""
        methods = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [told for method, told in self.events if method in methods]

    async def _next(self) -> dict[str, Any]:
        told: dict[str, Any] = await self._socket.receive_json(timeout=_PATIENCE_S)
        if "method" in told:
            self.events.append((told["method"], told["params"]))
        return told


@asynccontextmanager
async def tab() -> AsyncIterator[Tab]:
    """A page of a browser with a profile of its own; both are gone afterwards."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [PROGRAM, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
            try:
                address = await asyncio.wait_for(_address(Path(profile), it), _PATIENCE_S)
                async with (
                    aiohttp.ClientSession() as session,
                    session.ws_connect(address, max_msg_size=0) as socket,
                ):
                    yield await _attached(socket)
            finally:
                it.terminate()


async def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    file = profile / _PORT_FILE
    while not file.is_file() or file.read_text().count("\n") < 1:
        assert process.poll() is None, f"Chromium has ended with {process.returncode}"
        await asyncio.sleep(0.02)
    port, path = file.read_text().split()
    return f"ws://127.0.0.1:{port}{path}"


async def _attached(socket: aiohttp.ClientWebSocketResponse) -> Tab:
    browser = Tab(socket, "")
    target = await browser.ask("Target.createTarget", url="about:blank")
    told = await browser.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
    page = Tab(socket, told["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        await page.ask(f"{domain}.enable")
    return page
