"""Copies trained networks from installed wheels."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from benchmarks.zoo.registry import Entry


def export(entry: Entry, file: Path) -> None:
    shutil.copyfile(Path(sysconfig.get_path("purelib")) / entry.model, file)
