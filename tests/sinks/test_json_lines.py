"""The kinds json-lines and stdout: whole lines whatever happens, within a bound."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from csdf_edge.testing.sink_contract import SinkContract, made_result
from launcher.config.ends.sink import FrameResult, ResultRefusedError, SinkConfig, SinkLostError
from launcher.errors import RunFailedError
from launcher.sinks import stdout
from launcher.sinks.json_lines import JsonLinesConfig, JsonLinesSink
from launcher.sinks.result_json import result_text
from launcher.sinks.stdout import StdoutConfig, StdoutSink
from tests.sinks.disks import full_disk

NAME = "results.jsonl"


def indices(path: Path) -> list[int]:
    content = path.read_bytes()
    assert content.endswith(b"\n") or not content
    return [json.loads(line)["index"] for line in content.splitlines()]


class TestJsonLines(SinkContract):
    def config(self, place: Path) -> SinkConfig:
        return JsonLinesConfig(path=NAME)

    def bounded(self, place: Path, most_bytes: int) -> SinkConfig:
        return JsonLinesConfig(path=NAME, keep_bytes=most_bytes, rotate_bytes=most_bytes // 4)

    def delivered(self, place: Path) -> list[int]:
        return indices(place / NAME)

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        with full_disk():
            yield


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / NAME)
    sink.write(made_result(0))
    size = (tmp_path / NAME).stat().st_size
    sentence = r"results\.jsonl: cannot be written"
    with full_disk(size + 20), pytest.raises(SinkLostError, match=sentence):
        sink.write(made_result(1))
    assert indices(tmp_path / NAME) == [0]


@pytest.mark.parametrize("tail", [b'{"index":7,"tak', b'{"ind', b"\0" * 4096, b'{"index":7\0\0'])
def test_a_half_line_that_a_crash_left_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / NAME
    path.write_bytes((result_text(made_result(0)) + b"\n") + tail)
    sink = JsonLinesSink(path)
    sink.write(made_result(1))
    sink.close()
    assert indices(path) == [0, 1]


def test_a_file_that_no_sink_has_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("one\ntwo")
    with pytest.raises(RunFailedError, match="no sink has written"):
        JsonLinesSink(path).write(made_result(0))
    assert path.read_text() == "one\ntwo"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunFailedError, match="not a regular file"):
        JsonLinesSink(tmp_path / "pipe").write(made_result(0))
    with pytest.raises(RunFailedError, match="Is a directory"):
        JsonLinesSink(tmp_path).write(made_result(0))


def test_two_runs_cannot_mix_their_lines(tmp_path: Path) -> None:
    first = JsonLinesSink(tmp_path / NAME)
    first.write(made_result(0))
    with pytest.raises(RunFailedError, match="another run"):
        JsonLinesSink(tmp_path / NAME).write(made_result(1))
    first.close()


def test_a_new_file_begins_at_a_size_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    line = len(result_text(made_result(10)) + b"\n")
    sink = JsonLinesSink(tmp_path / NAME, rotate_bytes=2 * line, keep_files=2)
    for index in range(10, 19):
        sink.write(made_result(index))
    sink.close()
    assert {path.name: indices(path) for path in tmp_path.iterdir()} == {
        "results.000003.jsonl": [14, 15],
        "results.000004.jsonl": [16, 17],
        NAME: [18],
    }


def test_a_new_file_begins_after_a_time_also_in_the_next_run(tmp_path: Path) -> None:
    for frames in (range(4), range(4, 12)):
        sink = JsonLinesSink(tmp_path / NAME, rotate_s=0.55)
        for index in frames:
            sink.write(made_result(index))
        sink.close()
    assert indices(tmp_path / "results.000001.jsonl") == list(range(6))
    assert indices(tmp_path / NAME) == list(range(6, 12))


def test_a_file_that_was_moved_away_is_begun_again(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / NAME)
    sink.write(made_result(0))
    (tmp_path / NAME).rename(tmp_path / "moved")
    sink.write(made_result(1))
    sink.close()
    assert (indices(tmp_path / "moved"), indices(tmp_path / NAME)) == ([0], [1])


def test_a_line_beyond_the_bound_is_refused_and_others_are_not(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / NAME, rotate_bytes=400, keep_bytes=800)
    with pytest.raises(ResultRefusedError, match="frame 0: its line has"):
        sink.write(made_result(0, values=500))
    sink.write(made_result(1))
    sink.close()
    assert indices(tmp_path / NAME) == [1]


KILLED = """
import sys
from pathlib import Path
from csdf_edge.testing.sink_contract import made_result
from launcher.sinks.json_lines import JsonLinesSink
sink = JsonLinesSink(Path(sys.argv[1]), rotate_bytes=200_000)
for index in range(1 << 60):
    sink.write(made_result(index, values=900))
    if index == 100:
        print("on", flush=True)
"""


def test_after_kill_9_every_line_is_whole_and_none_is_missing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / NAME)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"on\n"
        writer.send_signal(signal.SIGKILL)
    sink = JsonLinesSink(tmp_path / NAME, rotate_bytes=200_000)
    sink.write(made_result(1 << 60))
    sink.close()
    *full, current = sorted(tmp_path.iterdir())
    found = [index for path in (*full, current) for index in indices(path)]
    assert found == [*range(len(found) - 1), 1 << 60]
    assert len(found) > 100


class TestStdout(SinkContract):
    """A pipe is standard output; a reader that does not read is its outage."""

    @pytest.fixture(autouse=True)
    def _pipe(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.writer = os.fdopen(writer, "w")
        self.read = b""
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(stdout, "PATIENCE_S", 0.01)
        yield
        os.close(self.reader)
        self.writer.close()

    def config(self, place: Path) -> SinkConfig:
        self.monkeypatch.setattr(sys, "stdout", self.writer)
        return StdoutConfig()

    def delivered(self, place: Path) -> list[int]:
        self._drain()
        return [json.loads(line)["index"] for line in self.read.splitlines() if line]

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        os.set_blocking(self.writer.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.writer.fileno(), b"\n")
        yield
        self._drain()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.reader, 1 << 16):
                self.read += data

    def test_a_line_that_was_begun_is_completed_whatever_follows(self, tmp_path: Path) -> None:
        for then in (0, 1):
            self.read = b""
            with self.opened(self.config(tmp_path), tmp_path) as sink:
                with pytest.raises(SinkLostError, match="nobody reads it"):
                    sink.write(long_result(0))
                self._drain()
                with pytest.raises(SinkLostError):
                    sink.write(long_result(then))
                self._drain()
                sink.write(long_result(then) if then == 0 else made_result(then))
            assert self.delivered(tmp_path) == [*range(then + 1)]


class _Answer:
    def as_json(self) -> dict[str, object]:
        return {"masks": "x" * 160_000}


def long_result(index: int) -> FrameResult:
    return replace(made_result(index), predictions=_Answer())


def test_a_reader_that_has_exited_ends_the_run_by_a_broken_pipe(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        StdoutSink(writer).write(made_result(0))
    os.close(writer)
