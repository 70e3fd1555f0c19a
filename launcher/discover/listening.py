"""Listens for agents that announce themselves by multicast DNS (`node-agent --announce`).

Announcements are untrusted (`nodes.protocol.announcements`), and bounded in number.
"""

from __future__ import annotations

import queue
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from launcher.errors import BadInputError, RunFailedError
from nodes.protocol.announcements import SERVICE, Announcement, heard

if TYPE_CHECKING:
    from zeroconf import Zeroconf

MOST_AGENTS = 256
"""The most announcements that are read; more names are ignored."""

RESOLVE_S = 1.0
"""How long the lookup of one announcement may take."""


def listen(seconds: float) -> list[Announcement]:
    """Listen for `seconds`, and return the agents that announced themselves, by name.

    Raises `BadInputError` without the package zeroconf, `RunFailedError` without a network.
    """
    if find_spec("zeroconf") is None:
        raise BadInputError("launch discover needs zeroconf: pip install 'csdf-edge[discover]'")
    import zeroconf  # noqa: PLC0415 - only this command needs it

    names: queue.Queue[str] = queue.Queue(MOST_AGENTS)

    def note(name: str, state_change: zeroconf.ServiceStateChange, **_: object) -> None:
        if state_change is zeroconf.ServiceStateChange.Added and not names.full():
            names.put_nowait(name)

    try:
        ear = zeroconf.Zeroconf()
    except OSError as error:
        raise RunFailedError(f"multicast is impossible on this machine: {error}") from error
    try:
        browser = zeroconf.ServiceBrowser(ear, SERVICE, handlers=[note])
        found = _collect(ear, names, time.monotonic() + seconds)
        browser.cancel()
    finally:
        ear.close()
    return sorted(found.values(), key=lambda each: (each.name, each.address))


def _collect(ear: Zeroconf, names: queue.Queue[str], until_s: float) -> dict[str, Announcement]:
    """Look up every name that comes until then."""
    found: dict[str, Announcement] = {}
    seen: set[str] = set()
    while (left_s := until_s - time.monotonic()) > 0 and len(seen) < MOST_AGENTS:
        try:
            name = names.get(timeout=left_s)
        except queue.Empty:
            break
        if name in seen:
            continue
        seen.add(name)
        info = ear.get_service_info(SERVICE, name, timeout=int(RESOLVE_S * 1000))
        if info is None:
            continue
        agent = heard(info.parsed_addresses(), info.port or 0, info.properties)
        if agent is not None:
            found[name] = agent
    return found
