"""Files of runs as `launch` reads them: a journal's head and records, and a plan's index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from cnn.network import Tensor
from launcher.errors import BadInputError
from launcher.plan.subnet_files import cut_subnets
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.journal import RUN
from launcher.results.journal.result_files import output_specs
from launcher.results.journal.segment import RECORDS
from launcher.results.resuming import open_journal
from launcher.run.runtime import SubnetFiles
from partition.plan import Plan
from tests.fuzz.input_files import is_good_sentence

FRAMES = 5
IDENTITY = RunIdentity("m" * 64, "i" * 64, FRAMES, output_specs([Tensor("y", (1, 2), "float32")]))
_RESULT = np.array([[1, 2]], np.float32)


@contextmanager
def _journal(parent: Path) -> Iterator[Path]:
    """The folder of a journal in which two of the frames are done and one was dropped."""
    with TemporaryDirectory(dir=parent) as folder:
        path = Path(folder) / "run"
        with open_journal(path, IDENTITY, resume=False, where="--journal") as made:
            list(made.results())
            made.write(0, {"y": _RESULT})
            made.drop(3)
            made.write(4, {"y": _RESULT})
        yield path


class JournalReader:
    """Goes on with a journal one of whose files is changed; only frames that are there count."""

    def __init__(self, parent: Path) -> None:
        with _journal(parent) as path:
            self._files = {found.name: found.read_bytes() for found in path.iterdir()}
        self._folder = parent / "journal"
        self._folder.mkdir(exist_ok=True)
        self.records = (self._files[RECORDS],)
        head = self._files[RUN]
        self.heads = (head, json.dumps(json.loads(head)).encode())

    def _read(self, name: str, data: bytes) -> bool:
        before = set(self._folder.parent.iterdir())
        for found in self._folder.iterdir():
            found.unlink()
        for each, content in {**self._files, name: data}.items():
            (self._folder / each).write_bytes(content)
        try:
            with open_journal(self._folder, IDENTITY, resume=True, where="--journal") as opened:
                for frame, outputs in opened.results():
                    assert 0 <= frame < FRAMES
                    assert np.array_equal(outputs["y"], _RESULT)
                assert opened.done + opened.dropped_count + len(opened.open_frames()) == FRAMES
                good = opened.done == 2
        except BadInputError as error:
            is_good_sentence(error)
            good = False
        assert {found.name for found in self._folder.iterdir()} <= self._files.keys()
        assert set(self._folder.parent.iterdir()) == before
        return good

    def read_head(self, data: bytes) -> bool:
        """Bytes as its `run.json`."""
        return self._read(RUN, data)

    def read_records(self, data: bytes) -> bool:
        """Bytes as its records."""
        return self._read(RECORDS, data)


class IndexReader:
    """Cuts a plan without phases: whatever files the index names are not needed any more."""

    def __init__(self, parent: Path) -> None:
        self._folder = parent / "plan" / "subnets"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._surplus, self._mine = self._folder / ("0" * 64), self._folder / "mine"
        for path in (parent / "mine", self._folder.parent / "mine", self._mine):
            path.touch()
        self._kept = (*parent.iterdir(), *self._folder.parent.iterdir(), self._mine)
        index = {"1" * 64: ["0" * 64], "2" * 64: ["3" * 64, "4" * 64]}
        self.seeds = (json.dumps(index).encode(), json.dumps(index, indent=1).encode())

    def read(self, data: bytes) -> bool:
        """Bytes as `index.json`; whether the surplus file that the seeds name was removed."""
        self._surplus.touch()
        (self._folder / "index.json").write_bytes(data)
        assert cut_subnets(NoModel(), EMPTY_PLAN, self._folder, lambda done, total: None) == {}
        assert all(path.exists() for path in self._kept)
        return not self._surplus.exists()


class NoModel:
    """A model of which nothing is cut."""

    digest = "d" * 64

    def rewritten(self, rewrites: object) -> NoModel:
        return self

    def cut(self, *_: object) -> SubnetFiles:
        raise AssertionError("a plan without phases needs no subnet")


EMPTY_PLAN = Plan("net", "d" * 64, "none", "", (), {}, (), (), {}, 1.0, 1.0, 0, "")
