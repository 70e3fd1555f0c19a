"""Installs a plugin of docs/plugins.md, as pip would install it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import markdown

PAGE = markdown.ROOT / "docs" / "plugins.md"


def installed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, group: str
) -> Iterator[Path]:
    """Put the package `name` and its entry points in `group` into `folder`, which is yielded."""
    own = name.replace("-", "_")
    (folder / f"{own}.py").write_text(module)
    info = folder / f"{own}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (entry_points,) = (b for b in markdown.blocks(PAGE, "toml") if group in b)
    written = (
        entry_points.replace('[project.entry-points."', "[").replace('"]', "]").replace('"', "")
    )
    (info / "entry_points.txt").write_text(written)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop(own, None)
