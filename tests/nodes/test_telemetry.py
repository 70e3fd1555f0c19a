"""An agent leaves nothing of its engine's in the home of its user, and no file of it stays open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nodes.speaker import AgentProcess


def test_the_engine_notes_nothing_for_its_maker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[..., AgentProcess]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    links = Path(f"/proc/{start().pid}/fd").iterdir()
    databases = [found for link in links if ".db" in (found := os.readlink(link))]
    assert databases == []
    assert list(home.rglob("*")) == []
