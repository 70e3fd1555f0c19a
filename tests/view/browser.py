"""Chromium without a screen, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

WAIT_S = 30.0

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One tab. `problems` has what the page and its Content-Security-Policy complained of."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Any) -> None:
        self._loop = loop
        self._socket = socket
        self._number = 0
        self._is_loaded = False
        self.problems: list[str] = []
        self.fetched: set[str] = set()

    def open(self, url: str, *, width: int = 1200, height: int = 1000, dark: bool = False) -> None:
        """Open a page in a window of this size."""
        self.problems.clear()
        self.fetched.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._is_loaded = False
        self._call("Page.navigate", url=url)
        while not self._is_loaded:
            self._loop.run_until_complete(asyncio.wait_for(self._take_in(), WAIT_S))

    def value(self, script: str) -> Any:
        """Return what an expression is in the page; a promise is awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Return once an expression of the page is true; it is looked at with every frame."""
        assert self.value(
            "new Promise((found) => { const until = performance.now() + "
            f"{1000 * WAIT_S}; const look = () => {{ if ({condition}) found(true); "
            "else if (performance.now() > until) found(false); else setTimeout(look, 20); }; "
            "look(); })"
        ), f"{condition} does not come true; the page is: {self.text()}"

    def text(self) -> str:
        """The text that a reader sees."""
        return str(self.value("document.body.innerText"))

    def picture(self, path: Path) -> None:
        """Save the whole page as PNG."""
        height = self.value("document.documentElement.scrollHeight")
        width = self.value("window.innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = self._call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        return self._loop.run_until_complete(
            asyncio.wait_for(self.call(method, parameters), WAIT_S + 10)
        )

    async def call(self, method: str, parameters: dict[str, Any]) -> Any:
        """Call a method of the protocol, and take in events until its answer comes."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._take_in()
            if message.get("id") == self._number:
                if "error" in message:
                    raise AssertionError(message["error"])
                return message["result"]

    async def _take_in(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await self._socket.receive_str())
        self._event(message.get("method", ""), message.get("params", {}))
        return message

    def _event(self, method: str, about: dict[str, Any]) -> None:
        if method == "Log.entryAdded":
            self.problems.append(about["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(about["exceptionDetails"]["text"])
        elif method == "Page.loadEventFired":
            self._is_loaded = True
        elif method == "Network.requestWillBeSent":
            self.fetched.add(about["request"]["url"])


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a browser; it ends with the context."""
    assert CHROMIUM is not None
    with TemporaryDirectory() as profile:
        process = subprocess.Popen(
            [
                *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-extensions", "--disable-background-networking"),
                *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        loop = asyncio.new_event_loop()
        try:
            assert process.stderr is not None
            address = next(
                found[1]
                for line in process.stderr
                if (found := re.search(r"on ws://([^/]+)/", line))
            )
            session, tab = loop.run_until_complete(_attach(loop, address))
            try:
                yield tab
            finally:
                loop.run_until_complete(session.close())
        finally:
            process.terminate()
            process.communicate(timeout=WAIT_S)
            loop.close()


async def _attach(loop: asyncio.AbstractEventLoop, address: str) -> tuple[Any, Browser]:
    session = aiohttp.ClientSession()
    async with session.get(f"http://{address}/json/list") as answer:
        pages = [each for each in await answer.json() if each["type"] == "page"]
    socket = await session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 26)
    tab = Browser(loop, socket)
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.call(f"{domain}.enable", {})
    return session, tab
