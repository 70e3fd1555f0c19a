"""The parts of the random kills: what starts daemons again, and what finds what was lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TextIO

import numpy as np
import pytest

from benchmarks.daemon import Daemon
from benchmarks.kills.draws import TARGETS, candidates
from benchmarks.kills.kept_stream import KeptStream
from benchmarks.kills.operating import Operator
from benchmarks.kills.stage import back_after_s
from benchmarks.serving.clients import Answer, Asked
from launcher.results.journal.journal import RUN
from launcher.results.journal.result_files import OutputSpec
from launcher.results.journal.segment import Segment
from launcher.service.store import DATABASE, Generation, KeptModel, open_state

OUTPUT = OutputSpec("y", "y.npy", "float32", (1,))
RUN_NUMBER = bytes(range(8))


TELL = """
import os, signal, socket, sys
open(sys.argv[1], "w").write("life\\n")
"""
READY = """
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
"""


def daemon(folder: Path, code: str, watchdog_s: float | None = None) -> tuple[Daemon, TextIO]:
    """A daemon that runs this code, and a pipe with a line for each of its lives."""
    pipe = folder / "lives"
    os.mkfifo(pipe)
    command = [sys.executable, "-c", code, str(pipe)]
    lives = os.fdopen(os.open(pipe, os.O_RDWR))
    kept = Daemon("tests", command, folder, {}, rest_s=lambda: 0.0, watchdog_s=watchdog_s)
    return kept, lives


def test_what_ends_is_started_again(tmp_path: Path) -> None:
    kept, lives = daemon(tmp_path, TELL)
    assert [lives.readline() for _ in range(3)] == 3 * ["life\n"]
    kept.end()
    assert kept.starts >= 3
    lives.close()


def test_what_falls_silent_is_killed_and_started_again(tmp_path: Path) -> None:
    kept, lives = daemon(tmp_path, TELL + READY, watchdog_s=0.3)
    assert [lives.readline() for _ in range(2)] == 2 * ["life\n"]
    kept.end()
    assert kept.codes[0] == -signal.SIGKILL
    lives.close()


def test_every_kind_of_target_is_found_among_what_runs() -> None:
    names = ("server", "stream", "left", "middle", "right")
    members = {
        f"{name}{below}": [number]
        for number, (name, below) in enumerate(
            (name, below) for name in names for below in ("", " child", " grandchild")
        )
    }
    found = {target.kind: candidates(target.kind, members) for target in TARGETS}
    assert all(found.values())
    every = [pid for pids in found.values() for pid in pids]
    assert len(every) == len(set(every))
    assert not any(candidates(target.kind, {}) for target in TARGETS)


@pytest.fixture
def kept(tmp_path: Path) -> KeptStream:
    """A journal in which frames 0 to 3 have their results."""
    (tmp_path / RUN).write_text(f'{{"run": "{RUN_NUMBER.hex()}"}}')
    write(tmp_path, range(4))
    return KeptStream(tmp_path)


def write(folder: Path, frames: range, scale: float = 1.0) -> None:
    segment = Segment(folder, (OUTPUT,), RUN_NUMBER, 0, 100)
    for frame in frames:
        segment.write(frame, {"y": np.array([scale * (frame % 3)], np.float32)})
    segment.close()


WHOLE = [np.array([float(number)], np.float32) for number in range(3)]


def test_a_journal_that_grows_loses_nothing(kept: KeptStream) -> None:
    kept.look()
    write(kept.folder, range(4, 9))
    kept.look()
    assert (len(kept.acknowledged), kept.lost, kept.doubled, kept.wrong(WHOLE)) == (9, 0, 0, 0)


def test_a_frame_that_was_acknowledged_and_is_gone_is_found(kept: KeptStream) -> None:
    kept.look()
    with (kept.folder / "journal").open("r+b") as records:
        records.truncate(records.seek(0, 2) // 2)
    kept.look()
    assert kept.lost == 2


def test_a_wrong_frame_is_found(kept: KeptStream) -> None:
    write(kept.folder, range(1, 2), scale=2.0)
    kept.look()
    assert kept.wrong(WHOLE) == 1


def test_an_acknowledged_change_that_is_gone_is_found(tmp_path: Path) -> None:
    operator = Operator(tmp_path, lambda _: tmp_path, lambda _: None, random.Random(0))
    with open_state(operator.state) as store:
        for number in (1, 2):
            model = KeptModel("digits", str(number), f"digest {number}", "", "")
            store.add(Generation(number, 0.0, "", "", (model,), {}))
    operator.acknowledged = operator.generations()
    operator.check()
    assert operator.lost == []
    with closing(sqlite3.connect(operator.state / DATABASE)) as database, database:
        database.execute("DELETE FROM generations WHERE number = 2")
    operator.check()
    assert operator.lost == ["generation 2 is gone; the last one is 1"]


def test_the_time_to_the_next_answer_counts_from_the_last_disturbance() -> None:
    came = ((0.5, 0.1), (1.5, 2.5), (2.5, 1.7), (5.0, 0.1))
    asked = Asked([Answer(sent_s, took_s, 1) for sent_s, took_s in came])
    assert back_after_s(1.0, [1.0], asked) == pytest.approx(3.0)
    assert back_after_s(1.0, [1.0, 2.0], asked) == pytest.approx(2.2)  # it was struck again
    assert back_after_s(6.0, [6.0], asked) == float("inf")
