"""Reads the journal of a stream that is killed again and again, while it is written and after."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from launcher.results.journal.journal import RUN
from launcher.results.journal.records import DONE, decode
from launcher.results.journal.segment import RECORDS

Array = np.ndarray[Any, Any]


def frames_of(journal: Path) -> list[int]:
    """The frames with a record of their result in a journal, in its order."""
    run = bytes.fromhex(json.loads((journal / RUN).read_text("utf-8"))["run"])
    records = decode((journal / RECORDS).read_bytes(), run)
    return [record.frame for _, record in records if record.kind == DONE]


@dataclass
class KeptStream:
    """The journal in `folder`, of a run without a bound. A frame with a valid record is
    acknowledged, because readers of the journal count on it."""

    folder: Path
    acknowledged: set[int] = field(default_factory=set)
    lost: int = 0
    doubled: int = 0

    def look(self) -> None:
        """Note the frames that are acknowledged by now, and those that are so no longer."""
        if not (self.folder / RECORDS).exists():
            return
        found = Counter(frames_of(self.folder))
        self.lost += len(self.acknowledged - found.keys())
        self.doubled = sum(count > 1 for count in found.values())
        self.acknowledged |= found.keys()

    def wrong(self, wanted: Sequence[Array]) -> int:
        """Return how many acknowledged frames have another result than the whole network's;
        frame k is the input k modulo the number of `wanted`."""
        (path,) = self.folder.glob("*.npy")
        rows = np.load(path, mmap_mode="r")
        return sum(
            not np.allclose(
                rows[frame].ravel(), wanted[frame % len(wanted)].ravel(), rtol=1e-3, atol=1e-5
            )
            for frame in self.acknowledged
        )
