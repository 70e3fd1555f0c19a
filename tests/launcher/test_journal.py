"""A journal that was cut off anywhere restores what was saved; only the rest is computed again."""

from __future__ import annotations

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Tensor
from launcher.errors import BadInputError, RunFailedError
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.journal import Journal
from launcher.results.journal.records import (
    DONE,
    DROPPED,
    RECORD_BYTES,
    FrameRecord,
    decode,
    encode,
)
from launcher.results.journal.result_files import output_specs
from launcher.results.resuming import check_room, open_journal

RUN = b"run one!"
FRAMES = 4
NPY_HEAD = 128
SPECS = output_specs([Tensor("score", (1, 2), "float32"), Tensor("aux/map", (3,), "uint8")])
IDENTITY = RunIdentity("model", "inputs", FRAMES, SPECS)

records = st.builds(
    FrameRecord, st.integers(0, 2**40), st.sampled_from([DONE, DROPPED]), st.just(7)
)


def outputs(frame: int) -> dict[str, np.ndarray]:
    score = np.array([[frame + 0.5, -frame]], np.float32)
    return {"score": score, "aux/map": np.full(3, frame, np.uint8)}


def opened(folder: Path, *, resume: bool = True, identity: RunIdentity = IDENTITY) -> Journal:
    return open_journal(folder, identity, resume=resume, where="--journal")


def restored(of: Journal) -> list[int]:
    """The frames that the journal gives back, each with the result that it had."""
    found = []
    for frame, result in of.results():
        wanted = outputs(frame)
        assert all(np.array_equal(result[name], wanted[name]) for name in wanted)
        found.append(frame)
    assert sorted(found + list(of.open_frames())) == list(range(FRAMES))
    return found


def end(journal: Journal) -> None:
    """Close files as the end of a process does: all stops, and nothing is written any more."""
    journal._leaving.put(None)
    journal._working.result()
    for segment in journal._open.values():
        segment.close()
    journal._opened.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is not waited for: these tests cut files, not power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


@pytest.fixture
def whole(tmp_path: Path, quick: None) -> Path:
    """The journal of a run that is complete."""
    with opened(tmp_path / "whole", resume=False) as made:
        for frame in range(FRAMES):
            made.write(frame, outputs(frame))
    return tmp_path / "whole"


# ---------------------------------------------------------------- records


@given(st.lists(records), st.data())
def test_records_cut_off_anywhere_are_those_before_the_cut(
    written: list[FrameRecord], data: st.DataObject
) -> None:
    whole = b"".join(encode(record, RUN) for record in written)
    cut = data.draw(st.integers(0, len(whole)))
    found = list(decode(whole[:cut], RUN))
    assert found == list(enumerate(written[: cut // RECORD_BYTES]))


@given(st.lists(records, min_size=1, unique=True), st.data())
def test_a_damaged_byte_costs_the_record_that_it_is_in_and_no_other(
    written: list[FrameRecord], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(encode(record, RUN) for record in written))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    del written[at // RECORD_BYTES]
    assert [record for _, record in decode(bytes(whole), RUN)] == written


@given(st.binary(max_size=200))
def test_bytes_of_another_run_or_of_none_are_not_a_record(data: bytes) -> None:
    other = encode(FrameRecord(3, DONE, 7), b"run two!")
    assert list(decode(other + data, RUN)) == []


# ---------------------------------------------------------------- crash points


@pytest.mark.parametrize("file", ["journal", *(spec.file for spec in SPECS)])
def test_a_file_cut_off_at_any_byte_costs_only_the_frames_after_the_cut(
    whole: Path, file: str
) -> None:
    original = {path.name: path.read_bytes() for path in whole.iterdir()}
    head = 0 if file == "journal" else NPY_HEAD  # one cut in there is like another
    for cut in (*range(0, head, 32), *range(head, len(original[file]))):
        (whole / file).write_bytes(original[file][:cut])
        with opened(whole) as again:
            found = restored(again)
            assert found == list(range(len(found))), "only what is behind the cut is missing"
            for frame in again.open_frames():
                again.write(frame, outputs(frame))
        for name in set(original) - {"journal"}:
            assert (whole / name).read_bytes() == original[name]
        with opened(whole) as last:
            assert restored(last) == list(range(FRAMES))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from([*range(FRAMES), "killed", "torn"]), max_size=12))
def test_however_often_it_is_interrupted_each_frame_has_one_result(
    tmp_path_factory: pytest.TempPathFactory, history: list[int | str]
) -> None:
    folder = tmp_path_factory.mktemp("journal") / "run"
    made, saved = opened(folder), set[int]()
    for step in history:
        if isinstance(step, int):
            if step in made.open_frames():
                made.write(step, outputs(step))
                saved.add(step)
            continue
        end(made)
        if step == "torn":
            with (folder / "journal").open("ab") as file:
                file.write(encode(FrameRecord(0, DONE, 1), RUN)[: len(saved) + 3])
        made = opened(folder)
        assert set(restored(made)) == saved
    made.close()


def test_a_result_that_was_damaged_on_disk_is_computed_again(whole: Path) -> None:
    with (whole / SPECS[0].file).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x07")
    with opened(whole) as again:
        assert restored(again) == [0, 1, 2]
        assert again.damaged == 1
        again.write(3, outputs(3))
    with opened(whole) as last:
        assert restored(last) == [0, 1, 2, 3]


def test_a_frame_that_was_dropped_stays_so(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as made:
        made.write(0, outputs(0))
        made.drop(1)
    with opened(tmp_path / "run") as again:
        assert [frame for frame, _ in again.results()] == [0]
        assert list(again.open_frames()) == [2, 3]
        assert (again.done, again.dropped()) == (1, ((1, 1),))


# ---------------------------------------------------------------- what users see


def test_results_are_one_file_per_output_that_numpy_reads_at_any_time(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as made:
        made.write(2, outputs(2))
        score = np.load(tmp_path / "run" / "score.npy", mmap_mode="r")
        assert score.shape == (FRAMES, 1, 2)
        np.testing.assert_array_equal(score[2], outputs(2)["score"])
    found = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert found == ["aux_map.npy", "journal", "run.json", "score.npy"]


def test_a_journal_can_be_read_by_nobody_else(whole: Path) -> None:
    files = [path for path in whole.iterdir() if path.is_file()]
    assert len(files) > 2
    assert {path.name: path.stat().st_mode & 0o777 for path in files} == {
        path.name: 0o600 for path in files
    }


def test_no_result_is_ever_rewritten(whole: Path) -> None:
    with opened(whole) as again:
        restored(again)
        with pytest.raises(RuntimeError, match="frame 1 is settled already"):
            again.write(1, outputs(3))


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (RunIdentity("new", "inputs", FRAMES, SPECS), "its model differs"),
        (RunIdentity("model", "new", FRAMES, SPECS), "its inputs differ"),
        (RunIdentity("model", "inputs", 9, SPECS), "it has 4 frames, not 9"),
        (RunIdentity("model", "inputs", FRAMES, SPECS[:1]), "other outputs"),
    ],
)
def test_the_journal_of_another_run_is_refused(whole: Path, other: RunIdentity, why: str) -> None:
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    with pytest.raises(BadInputError, match=f"the journal of another run: .*{why}"):
        opened(whole, identity=other)
    assert {path.name: path.read_bytes() for path in whole.iterdir()} == before


def test_a_journal_is_not_written_over_without_resume(whole: Path) -> None:
    with pytest.raises(BadInputError, match="already holds the results of a run; --resume"):
        opened(whole, resume=False)


def test_of_launches_that_begin_at_once_one_has_the_journal(tmp_path: Path) -> None:
    """Each has what it wrote in the end, or was refused."""
    ready = threading.Barrier(4)

    def begin(frame: int) -> list[int]:
        ready.wait()
        try:
            with opened(tmp_path / "run") as made:
                list(made.results())
                made.write(frame, outputs(frame))
                return [frame]
        except BadInputError:
            return []

    with ThreadPoolExecutor(4) as threads:
        written = list(chain.from_iterable(threads.map(begin, range(FRAMES))))
    assert written
    with opened(tmp_path / "run") as last:
        assert restored(last) == sorted(written)


def test_two_launches_do_not_share_a_journal(whole: Path) -> None:
    with opened(whole), pytest.raises(BadInputError, match="another launch is writing to"):
        opened(whole)


def test_a_folder_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "score.npy").write_text("mine")
    with pytest.raises(BadInputError, match="neither empty nor a journal"):
        opened(tmp_path)
    assert (tmp_path / "score.npy").read_text() == "mine"


INFINITE = (
    '{"format": 1, "run": "0011223344556677", '
    '"identity": {"model": "m", "inputs": "i", "frames": 1e999, "outputs": []}}'
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ", line 1: is not valid JSON"),
        ("{}", ": cannot be read as the head of a journal"),
        ("[]", ": cannot be read as the head of a journal"),
        ('{"format": 1, "run": "00", "identity": {}}', ": cannot be read as the head of a journal"),
        (INFINITE, ", line 1: 1e999 is larger than any number"),
    ],
)
def test_a_head_that_is_none_is_a_sentence(whole: Path, text: str, sentence: str) -> None:
    (whole / "run.json").write_text(text)
    with pytest.raises(BadInputError, match=re.escape(f"run.json{sentence}")):
        opened(whole)


def test_a_disk_without_room_is_reported_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "run") as made:
        list(made.results())
        check_room(made, "--journal")
        usage = type("Usage", (), {"free": FRAMES * (RECORD_BYTES + 11) - 1})
        monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
        with pytest.raises(BadInputError, match=r"where 123 B are free; make room"):
            check_room(made, "--journal")


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(28, "No space left on device")

    def refuse(descriptor: int, data: bytes, offset: int) -> int:
        raise full

    with opened(tmp_path / "run") as made:
        made.write(0, outputs(0))
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", refuse)
            with pytest.raises(
                RunFailedError, match=r"frame 1: .* No space left.* 1 of 4 are saved"
            ):
                made.write(1, outputs(1))
    with opened(tmp_path / "run") as again:
        assert restored(again) == [0]


# ---------------------------------------------------------------- results of any shape

VARYING = output_specs(
    [Tensor("boxes", (100, 4), "float32", varies=True), Tensor("journal", (9,), "int64", True)]
)


def found(frame: int) -> dict[str, np.ndarray]:
    """As many boxes as the frame's number: none in the first."""
    boxes = np.arange(frame * 4, dtype=np.float32).reshape(frame, 4)
    return {"boxes": boxes, "journal": np.arange(frame)[:, None] + 7}


def test_results_whose_shape_varies_come_back_as_they_were(tmp_path: Path, quick: None) -> None:
    identity = RunIdentity("model", "inputs", FRAMES, VARYING)
    with opened(tmp_path / "j", resume=False, identity=identity) as made:
        for frame in range(FRAMES):
            made.write(frame, found(frame))
    with opened(tmp_path / "j", identity=identity) as again:
        for frame, result in again.results():
            for name, array in found(frame).items():
                np.testing.assert_array_equal(result[name], array)
                assert result[name].dtype == array.dtype
        assert again.done == FRAMES
    assert np.load(tmp_path / "j" / "boxes.frames" / "000003.npy").shape == (3, 4)


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", None])
def test_a_varying_result_that_is_damaged_is_computed_again(
    tmp_path: Path, quick: None, damage: bytes | None
) -> None:
    identity = RunIdentity("model", "inputs", FRAMES, VARYING)
    with opened(tmp_path / "j", resume=False, identity=identity) as made:
        for frame in range(FRAMES):
            made.write(frame, found(frame))
    file = tmp_path / "j" / "boxes.frames" / "000002.npy"
    file.unlink() if damage is None else file.write_bytes(damage)
    with opened(tmp_path / "j", identity=identity) as again:
        assert [frame for frame, _ in again.results()] == [0, 1, 3]
        again.write(2, found(2))
    with opened(tmp_path / "j", identity=identity) as last:
        assert len(list(last.results())) == FRAMES
