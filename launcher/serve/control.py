"""The server's own API: its path, and the interface of its handler.

Commands import this module, so it imports nothing of what serves.
"""

from __future__ import annotations

from typing import Protocol

CONTROL_PATH = "/csdf-edge/v1/"
"""Where the server's own API begins."""

MOST_CONTROL_BYTES = 1 << 20


class Control(Protocol):
    """Answers the server's own API, at `CONTROL_PATH`."""

    state_problem: str
    """Why the service's state cannot be written; empty if all of it is."""

    def is_operator(self, authorization: str | bytes | None) -> bool:
        """Whether a header has the token of those who may change the service."""
        ...

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        """Return status and JSON data for a path below `CONTROL_PATH`; raises `RequestError`."""
        ...
