"""Copies networks: trained ones from installed wheels, and those of other entries.

The latter are for entries whose network stops before its file does.
"""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

from benchmarks.zoo.registry import Entry, file_of


def export(entry: Entry, file: Path) -> None:
    in_wheel = Path(sysconfig.get_path("purelib")) / entry.model
    shutil.copyfile(in_wheel if in_wheel.suffix else file_of(entry.model), file)
