"""Sinks with files per frame: whole files, and the oldest deleted within a bound."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdf_edge.testing.sink_contract import TAKEN_S, SinkContract, made_result
from launcher.config.ends.sink import ResultRefusedError, SinkConfig, SinkLostError
from launcher.errors import BadInputError, RunFailedError
from launcher.results.outputs import OutputFolder
from launcher.sinks.files import OWNER, FrameBound, FrameFolder
from launcher.sinks.npy import NpyConfig, NpySink
from tests.sinks.disks import full_disk


class TestNpy(SinkContract):
    def config(self, place: Path) -> SinkConfig:
        return NpyConfig(path="out")

    def bounded(self, place: Path, most_bytes: int) -> SinkConfig:
        return NpyConfig(path="out", keep_bytes=most_bytes)

    def delivered(self, place: Path) -> list[int]:
        found = sorted((place / "out").glob("*.npy"))
        assert all(np.load(path)[0, 0] == int(path.stem) for path in found)
        return [int(path.stem) for path in found]

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        with full_disk():
            yield


def names(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name != OWNER)


def frames(*indices: int) -> list[str]:
    return [f"{index:06d}.npy" for index in indices]


def write(folder: Path, indices: range, bound: FrameBound) -> None:
    sink = NpySink(FrameFolder(folder, bound))
    for index in indices:
        sink.write(made_result(index))
    sink.close()


def test_files_have_the_names_that_launch_gives_them(tmp_path: Path) -> None:
    outputs = {"a/b": np.ones((1, 2)), "c": np.array(3), "a b": np.zeros((0, 3))}
    with OutputFolder(tmp_path / "launch", tuple(outputs), input_name=str) as launch:
        launch.write(7, outputs)
    sink = NpyConfig(path="sink").open(tmp_path)
    sink.write(replace(made_result(7), outputs=outputs))
    assert names(tmp_path / "launch") == names(tmp_path / "sink")
    for name in names(tmp_path / "sink"):
        content = (tmp_path / "sink" / name).read_bytes()
        assert content == (tmp_path / "launch" / name).read_bytes()


@pytest.mark.parametrize(
    "bound",
    [
        FrameBound(3, 1 << 62, math.inf),
        FrameBound(100, 3 * 140, math.inf),
        FrameBound(100, 1 << 62, 0.25),
    ],
    ids=["number", "size", "age"],
)
def test_the_oldest_files_go_also_those_of_an_earlier_run(
    tmp_path: Path, bound: FrameBound
) -> None:
    write(tmp_path / "out", range(10, 18), bound)
    assert names(tmp_path / "out") == frames(15, 16, 17)
    write(tmp_path / "out", range(18, 20), bound)
    assert names(tmp_path / "out") == frames(17, 18, 19)


def test_a_run_that_begins_at_0_again_deletes_the_oldest_first(tmp_path: Path) -> None:
    bound = FrameBound(4, 1 << 62, math.inf)
    write(tmp_path / "out", range(10, 14), bound)
    sink = NpySink(FrameFolder(tmp_path / "out", bound))
    for index in (0, 1):
        sink.write(replace(made_result(index), taken_s=TAKEN_S + 100))
    assert names(tmp_path / "out") == frames(0, 1, 12, 13)


def test_files_of_somebody_else_are_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "000001.npy").write_text("mine")
    sink = NpySink(FrameFolder(tmp_path, FrameBound(1, 1 << 62, math.inf)))
    with pytest.raises(RunFailedError, match="name a new or empty folder"):
        sink.write(made_result(1))
    assert (tmp_path / "000001.npy").read_text() == "mine"


def test_two_runs_cannot_delete_each_others_files(tmp_path: Path) -> None:
    bound = FrameBound(2, 1 << 62, math.inf)
    first = NpySink(FrameFolder(tmp_path, bound))
    first.write(made_result(0))
    with pytest.raises(RunFailedError, match="another run"):
        NpySink(FrameFolder(tmp_path, bound)).write(made_result(1))
    first.close()


def test_what_a_crash_left_of_a_file_is_deleted(tmp_path: Path) -> None:
    bound = FrameBound(2, 1 << 62, math.inf)
    write(tmp_path, range(1), bound)
    (tmp_path / ".000001.npy.4711").write_bytes(bytes(1000))
    write(tmp_path, range(1, 2), bound)
    assert names(tmp_path) == frames(0, 1)


def test_a_folder_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    sink = NpySink(FrameFolder(tmp_path / "out", None))
    sink.write(made_result(0))
    (tmp_path / "out" / "000000.npy").unlink()
    (tmp_path / "out").rmdir()
    with pytest.raises(SinkLostError):
        sink.write(made_result(1))
    sink.write(made_result(1))
    assert names(tmp_path / "out") == frames(1)


def test_a_place_that_nobody_can_write_ends_the_run(tmp_path: Path) -> None:
    sink = NpySink(FrameFolder(tmp_path / "out", None))
    (tmp_path / "out").write_text("")
    with pytest.raises(RunFailedError, match="out: cannot be written: "):
        sink.write(made_result(0))


def test_a_result_larger_than_the_bound_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    sink = NpySink(FrameFolder(tmp_path, FrameBound(9, 1000, math.inf)))
    sink.write(made_result(0))
    with pytest.raises(ResultRefusedError, match="frame 1: its files have 2128 bytes"):
        sink.write(made_result(1, values=500))
    assert names(tmp_path) == frames(0)


@settings(max_examples=60)
@given(data=st.data())
def test_a_bound_holds_for_all_histories(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After each write the newest frame is there, and no bound is exceeded."""
    folder = tmp_path_factory.mktemp("kept")
    bound = FrameBound(
        data.draw(st.integers(1, 5)), data.draw(st.integers(600, 3000)), data.draw(st.floats(0, 9))
    )
    sink = FrameFolder(folder, bound)
    taken_s = TAKEN_S
    for _ in range(data.draw(st.integers(1, 20))):
        index, files = data.draw(st.integers(0, 8)), data.draw(st.integers(1, 2))
        taken_s += data.draw(st.floats(-3, 3))
        content = bytes(data.draw(st.integers(0, 300)))
        sink.write(index, taken_s, {f"{index:06d}.{n}.npy": (content,) for n in range(files)})
        if data.draw(st.booleans()):
            sink.close()
            sink = FrameFolder(folder, bound)
        there = names(folder)
        assert [name for name in there if name.startswith(f"{index:06d}")]
        assert len({name[:6] for name in there}) <= bound.most_frames
        assert sum((folder / name).stat().st_size for name in there) <= bound.most_bytes
    sink.close()


def test_a_folder_that_can_never_be_made_is_refused_before_the_first_result(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").touch()
    with pytest.raises(BadInputError, match=r"clip\.mp4 is not a folder; name another place"):
        FrameFolder(tmp_path / "clip.mp4" / "out", None)
    FrameFolder(tmp_path / "new" / "out", None)
    assert not (tmp_path / "new").exists()
