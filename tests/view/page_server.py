"""The HTTP server of `launch serve` with runs that a test makes, in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from launcher.serve.over_http.server import http_server
from launcher.serve.routes import Routes
from launcher.serve.service import Service
from launcher.view.model import RunView


class Runs:
    """A service whose runs look as the test says; it serves no model."""

    def __init__(self, *views: RunView, token: str | None = None) -> None:
        self.now: tuple[RunView, ...] = views
        self.service = Service(Routes(), token, views=lambda: self.now)


@contextmanager
def page_server(runs: Runs, port: int = 0) -> Iterator[str]:
    """Serve; the value is the URL of the page."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    is_up = threading.Event()
    bound: list[int] = []

    async def serve() -> None:
        async with http_server(runs.service, "127.0.0.1", port) as found:
            bound.append(found)
            is_up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    is_up.wait(20)
    try:
        yield f"http://127.0.0.1:{bound[0]}/"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
