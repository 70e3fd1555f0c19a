"""A journal with a bound removes its oldest results, and never forgets which frames are settled."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Tensor
from launcher.errors import BadInputError, RunFailedError
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.journal import RUN, Journal
from launcher.results.journal.ranges import FrameRanges, FrameSequence
from launcher.results.journal.records import (
    DONE,
    DROPPED,
    RECORD_BYTES,
    FrameRecord,
    checksum,
    encode,
)
from launcher.results.journal.removed import MOST_DROPPED_RANGES, REMOVED, Removed
from launcher.results.journal.result_files import output_specs
from launcher.results.journal.segment import RECORDS, segment_bytes, used_bytes
from launcher.results.resuming import check_room, open_journal

FRAMES = 40
SPECS = output_specs([Tensor("score", (1, 1024), "float32"), Tensor("class", (1,), "int64")])
IDENTITY = RunIdentity("model", "inputs", FRAMES, SPECS)
PAIR = segment_bytes(SPECS, 2)
"""The bytes of a segment of two frames, of which eight make the least bound that is tried."""
KEEP = 8 * PAIR
AROUND = 4 * 4096
"""What the folder, `run.json`, and `removed` with its draft take beside the segments."""


def outputs(frame: int) -> dict[str, np.ndarray]:
    return {
        "score": np.full((1, 1024), frame + 0.5, np.float32),
        "class": np.array([frame], np.int64),
    }


def opened(
    folder: Path, keep: int | None = KEEP, *, resume: bool = True, identity: RunIdentity = IDENTITY
) -> Journal:
    return open_journal(folder, identity, resume=resume, where="--journal", keep_bytes=keep)


def end(journal: Journal) -> None:
    """Close files as the end of a process does: all stops, and nothing is written any more."""
    journal._leaving.put(None)
    journal._working.result()
    for segment in journal._open.values():
        segment.close()
    journal._opened.close()


def restored(journal: Journal, *, in_a_row: bool = False) -> list[int]:
    """The frames whose results the journal has, each with the result that it had."""
    found = []
    for frame, result in journal.results(in_a_row=in_a_row):
        for name, array in outputs(frame).items():
            np.testing.assert_array_equal(result[name], array)
        found.append(frame)
    return found


def frames_of(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return list(FrameSequence(FrameRanges(ranges)))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is not waited for: these tests end processes, not power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)


# ---------------------------------------------------------------- ranges

some_frames = st.sets(st.integers(0, 30))
some_ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12)


@given(some_ranges, some_ranges, st.integers(0, 30), st.integers(0, 10))
def test_ranges_are_the_sets_that_they_stand_for(
    one: list[tuple[int, int]], other: list[tuple[int, int]], first: int, length: int
) -> None:
    ours, theirs = (
        {frame for begin, more in each for frame in range(begin, begin + more + 1)}
        for each in (one, other)
    )
    ranges = FrameRanges((begin, begin + more) for begin, more in one)
    others = FrameRanges((begin, begin + more) for begin, more in other)
    last = first + length
    assert frames_of(ranges.ranges()) == sorted(ours)
    assert len(ranges) == len(ours)
    assert [frame in ranges for frame in range(40)] == [frame in ours for frame in range(40)]
    assert frames_of(ranges.without(others).ranges()) == sorted(ours - theirs)
    window = set(range(first, last + 1))
    assert frames_of(ranges.between(first, last).ranges()) == sorted(ours & window)
    assert frames_of(ranges.gaps(first, last).ranges()) == sorted(window - ours)
    assert ranges.in_a_row == next(frame for frame in range(40) if frame not in ours)
    apart = zip(ranges.ranges(), ranges.ranges()[1:], strict=False)
    assert all(end + 1 < begin for (_, end), (begin, _) in apart)


@given(some_frames)
def test_a_sequence_of_ranges_is_the_list_of_their_frames(frames: set[int]) -> None:
    sequence = FrameSequence(FrameRanges((frame, frame) for frame in frames))
    assert list(sequence) == [sequence[at] for at in range(len(sequence))] == sorted(frames)
    assert sequence[1:3] == tuple(sorted(frames)[1:3])
    with pytest.raises(IndexError):
        sequence[len(frames)]


# ---------------------------------------------------------------- what is kept and what is removed


def test_the_newest_results_stay_and_the_oldest_go(tmp_path: Path, quick: None) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(FRAMES):
            made.write(frame, outputs(frame))
    with opened(tmp_path / "run") as again:
        kept = restored(again)
        gone = frames_of(again.removed.settled)
        assert gone == list(range(len(gone)))
        assert gone + kept == list(range(FRAMES))
        assert 12 <= len(kept) <= 16, "a bound of eight segments of two frames"
        assert (again.done, again.removed.done) == (len(kept), len(gone))
        assert again.removed_before == len(gone)
        assert not again.open_frames()


def test_a_segment_is_files_that_numpy_reads(tmp_path: Path, quick: None) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(4):
            made.write(frame, outputs(frame))
    rows = np.load(tmp_path / "run" / "frames-000000000002" / "class.npy")
    np.testing.assert_array_equal(rows, [[2], [3]])


def test_without_a_bound_nothing_is_removed(tmp_path: Path, quick: None) -> None:
    with opened(tmp_path / "run", None, resume=False) as made:
        for frame in range(FRAMES):
            made.write(frame, outputs(frame))
    with opened(tmp_path / "run", None) as again:
        assert restored(again) == list(range(FRAMES))
        assert again.removed == Removed()


def test_a_journal_with_a_bound_continues_without_it_or_with_another(
    tmp_path: Path, quick: None
) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(20):
            made.write(frame, outputs(frame))
    with opened(tmp_path / "run", None) as free:
        before = restored(free)
        for frame in range(20, 30):
            free.write(frame, outputs(frame))
    with opened(tmp_path / "run", 4 * PAIR) as less:
        assert restored(less) == [*before, *range(20, 30)]
        for frame in range(30, FRAMES):
            less.write(frame, outputs(frame))
    assert used_bytes(tmp_path / "run") <= 5 * PAIR + AROUND
    with opened(tmp_path / "run") as last:
        kept = restored(last)
        assert kept == list(range(kept[0], FRAMES))
        assert not last.open_frames()


def test_dropped_frames_stay_dropped_when_their_records_go(tmp_path: Path, quick: None) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(FRAMES):
            made.drop(frame) if frame % 4 == 1 else made.write(frame, outputs(frame))
    with opened(tmp_path / "run") as again:
        kept = restored(again)
        assert again.dropped_count == FRAMES // 4
        assert frames_of(again.dropped()) == list(range(1, FRAMES, 4))
        assert again.removed.done + len(kept) == FRAMES - FRAMES // 4
        assert not again.open_frames()


def test_the_oldest_dropped_frames_are_only_counted() -> None:
    ranges = [(2 * number, 2 * number) for number in range(MOST_DROPPED_RANGES + 10)]
    every = FrameRanges([(0, ranges[-1][1])])
    removed = Removed().and_these(every, FrameRanges(ranges))
    assert removed.dropped == len(ranges)
    assert removed.dropped_ranges == tuple(ranges[10:])
    assert removed.settled == every.ranges()


def test_results_whose_shape_varies_are_removed_too(tmp_path: Path, quick: None) -> None:
    specs = output_specs([Tensor("boxes", (100, 4), "float32", varies=True)])
    identity = RunIdentity("model", "inputs", FRAMES, specs)
    keep = 8 * segment_bytes(specs, 2)
    with opened(tmp_path / "run", keep, resume=False, identity=identity) as made:
        for frame in range(FRAMES):
            made.write(frame, {"boxes": np.full((frame, 4), frame, np.float32)})
    with opened(tmp_path / "run", identity=identity) as again:
        kept = {frame: result["boxes"].shape for frame, result in again.results()}
        assert kept == {frame: (frame, 4) for frame in range(min(kept), FRAMES)}
        assert min(kept) == again.removed.done > 0


def test_an_error_of_any_type_in_its_thread_ends_the_run_and_does_not_hang_it(
    tmp_path: Path, quick: None
) -> None:
    def fail() -> None:
        raise SystemExit("no memory")

    def write_all() -> None:
        for frame in range(FRAMES):
            made.write(frame, outputs(frame))

    with opened(tmp_path / "run", resume=False) as made:
        made.before_removal = fail
        with pytest.raises(SystemExit, match="no memory"):
            write_all()
        end(made)
        made._closed = True


def test_nothing_is_removed_before_it_is_written_elsewhere(tmp_path: Path, quick: None) -> None:
    """`before_removal` sees every result that goes; if it fails, none goes and the run ends."""
    with opened(tmp_path / "run", resume=False) as made:
        seen = []

        def look() -> None:
            seen.append(made.removed.done)
            if len(seen) > 2:
                raise OSError(28, "No space left on device")

        def write_all() -> None:
            for frame in range(FRAMES):
                made.write(frame, outputs(frame))

        made.before_removal = look
        with pytest.raises(RunFailedError, match="No space left on device"):
            write_all()
        end(made)
        made._closed = True
    with opened(tmp_path / "run") as again:
        assert len(seen) == 3
        assert again.removed.done == seen[-1] > 0
        assert restored(again)[0] == again.removed.done


# ---------------------------------------------------------------- any history

steps = st.lists(
    st.one_of(
        st.tuples(st.just("next"), st.integers(1, 9)),
        st.tuples(st.just("drop ahead"), st.integers(1, 6)),
        st.tuples(st.just("any"), st.integers(0, FRAMES - 1)),
        st.tuples(st.sampled_from(["killed", "closed"]), st.sampled_from([2, 4, 8, 12, None])),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(steps)
def test_in_any_history_no_frame_is_lost_or_computed_twice_and_the_bound_holds(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Any]]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        patched.setattr(os, "fdatasync", lambda descriptor: None)
        folder = tmp_path_factory.mktemp("journal") / "run"
        made, bound = opened(folder), 8
        done, dropped = set[int](), set[int]()
        largest = 0

        def write(frame: int) -> None:
            made.write(frame, outputs(frame))
            done.add(frame)

        for what, number in [*history, ("next", FRAMES)]:
            waiting = list(made.open_frames())
            if what == "next":
                for frame in waiting[:number]:
                    write(frame)
                    largest = max(largest, used_bytes(folder))
            elif what == "drop ahead":
                for frame in waiting[2 * number : 3 * number]:
                    made.drop(frame)
                    dropped.add(frame)
            elif what == "any":
                if number in waiting:
                    write(number)
            else:
                end(made) if what == "killed" else made.close()
                if bound is not None:
                    assert largest <= (bound + 1) * PAIR + AROUND
                made, bound = opened(folder, number and number * PAIR), number
                kept = set(restored(made))
                gone = set(frames_of(made.removed.settled))
                assert kept.isdisjoint(gone)
                assert kept | gone | dropped == done | dropped
                assert set(made.open_frames()) == set(range(FRAMES)) - done - dropped
                assert made.dropped_count == len(dropped)
                assert made.done + made.removed.done == len(done)
                largest = 0
        assert not made.open_frames()
        if bound is not None:
            assert largest <= (bound + 1) * PAIR + AROUND
        made.close()


# ---------------------------------------------------------------- crashes at every system call

SETTLED = 30
CHANGES = ("pwrite", "ftruncate", "fsync", "fdatasync", "replace", "unlink", "mkdir", "rmdir")


class Disk:
    """Counts the calls that change the disk; from number `until` on, each fails and does nothing.

    `synced` has the content with which each file, by its inode, last reached the disk.
    """

    def __init__(self, until: int) -> None:
        self.until = until
        self.calls = 0
        self.synced: dict[int, bytes] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            for name in CHANGES:
                patched.setattr(os, name, self._failing(getattr(os, name), name))
            yield

    def _failing(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls > self.until:
                raise OSError(5, "the machine is off")
            if name not in ("fsync", "fdatasync"):
                return call(*given, **named)
            if os.path.isfile(path := f"/proc/self/fd/{given[0]}"):
                self.synced[os.fstat(given[0]).st_ino] = Path(path).read_bytes()
            return None

        return made

    def lose_power(self, folder: Path) -> None:
        """Leave of each file only what was synced; folders have all that was done to them."""
        for path in folder.rglob("*"):
            if path.is_file():
                path.write_bytes(self.synced.get(path.stat().st_ino, b""))


def interrupted(folder: Path, disk: Disk, *, in_a_row: bool) -> tuple[set[int], set[int]]:
    """Run until the machine goes off; the frames that were written, and those surely on disk."""
    written, safe = set[int](), set[int]()
    with disk.attached():
        try:
            made = opened(folder, 4 * PAIR)
        except (BadInputError, OSError):
            return written, safe
        try:
            list(made.results(in_a_row=in_a_row))
            for frame in tuple(made.open_frames()):
                made.write(frame, outputs(frame))
                written.add(frame)
                if frame % 5 == 0:
                    made._within_bound.wait()
                    if made._problem is None:
                        made._sync()
                        safe = set(written)
        except (RunFailedError, OSError):
            pass
        end(made)
    return written, safe


@pytest.fixture(scope="module")
def most(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal in which most frames are settled."""
    folder = tmp_path_factory.mktemp("most") / "run"
    with opened(folder) as made:
        list(made.results(in_a_row=True))
        for frame in range(SETTLED):
            made.write(frame, outputs(frame))
    return folder


def copied(folder: Path, to: Path) -> Path:
    for path in folder.rglob("*"):
        target = to / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
    return to


@pytest.mark.slow
@pytest.mark.parametrize("power", [True, False], ids=["power cut", "killed"])
def test_wherever_it_is_interrupted_no_result_is_lost_and_the_run_can_be_finished(
    most: Path, tmp_path: Path, quick: None, power: bool
) -> None:
    until, is_whole = 0, False
    while not is_whole:
        folder = copied(most, tmp_path / f"{until}")
        disk = Disk(until)
        for path in folder.rglob("*"):
            if path.is_file():
                disk.synced[path.stat().st_ino] = path.read_bytes()
        written, safe = interrupted(folder, disk, in_a_row=True)
        is_whole = disk.calls <= until
        if power:
            disk.lose_power(folder)
        with opened(folder, 4 * PAIR) as again:
            restored(again, in_a_row=True)
            left = set(again.open_frames())
            before = set(range(SETTLED))
            assert left.isdisjoint(before | (safe if power else written))
            last = again.last_removed()
            for frame in sorted(left):
                again.write(frame, outputs(frame))
        assert used_bytes(folder) <= 5 * PAIR + AROUND
        with opened(folder) as whole:
            kept = restored(whole, in_a_row=True)
            assert kept == list(range(whole.removed.done, FRAMES))
            last = whole.last_removed()
            assert last is not None
            assert last["class"][0] == whole.removed.done - 1, "the state goes on behind it"
        until += 1
    assert until > 30


def test_a_removal_that_was_interrupted_is_completed_and_its_frames_stay_removed(
    tmp_path: Path, quick: None
) -> None:
    """The account of the removal is written, and the segment is there as well."""
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(8):
            made.write(frame, outputs(frame))
    oldest = tmp_path / "run" / "frames-000000000000"
    copy = {path.name: path.read_bytes() for path in oldest.iterdir()}
    with opened(tmp_path / "run") as again:
        restored(again)
        for frame in range(8, 30):
            again.write(frame, outputs(frame))
    oldest.mkdir()
    for name, content in copy.items():
        (oldest / name).write_bytes(content)
    with opened(tmp_path / "run") as last:
        assert not {0, 1} & set(restored(last))
        assert {0, 1} <= set(frames_of(last.removed.settled))
        total = last.done + last.removed.done
        for frame in range(30, FRAMES):
            last.write(frame, outputs(frame))
        assert last.done + last.removed.done == total + 10
    assert not oldest.exists()


# ---------------------------------------------------------------- state between frames


def test_the_state_after_the_removed_results_is_kept(tmp_path: Path, quick: None) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        list(made.results(in_a_row=True))
        for frame in range(30):
            made.write(frame, outputs(frame))
    with opened(tmp_path / "run") as again:
        kept = restored(again, in_a_row=True)
        last = again.last_removed()
        assert last is not None
        np.testing.assert_array_equal(last["class"], [kept[0] - 1])


def test_results_after_a_damaged_one_are_computed_again_if_there_is_state(
    tmp_path: Path, quick: None
) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        list(made.results(in_a_row=True))
        for frame in range(30):
            made.write(frame, outputs(frame))
    with opened(tmp_path / "run") as again:
        kept = restored(again)
    spoilt = tmp_path / "run" / f"frames-{kept[0]:012d}" / "class.npy"
    spoilt.write_bytes(spoilt.read_bytes()[:-1] + b"\1")
    with opened(tmp_path / "run") as last:
        assert restored(last, in_a_row=True) == kept[:1]
        assert last.damaged == 1
        assert list(last.open_frames()) == list(range(kept[1], FRAMES))
        for frame in last.open_frames():
            last.write(frame, outputs(frame))


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("keep", [None, 1 << 40], ids=["no bound", "a bound"])
def test_reading_a_long_journal_takes_no_memory_for_each_frame(
    tmp_path: Path, quick: None, keep: int | None
) -> None:
    frames = 50_000
    specs = output_specs([Tensor("class", (1,), "int64")])
    identity = RunIdentity("model", "inputs", frames, specs)
    folder = tmp_path / "run"
    made = opened(folder, keep, resume=False, identity=identity)
    made.write(0, {"class": np.zeros(1, np.int64)})
    made.close()
    crc = checksum([bytes(8)])
    records = (
        encode(FrameRecord(frame, DROPPED if frame % 30_000 == 1 else DONE, crc), made._run)
        for frame in range(frames)
    )
    next(folder.rglob(RECORDS)).write_bytes(b"".join(records))
    with opened(folder, keep, identity=identity) as again:
        tracemalloc.start()
        try:
            count = sum(1 for _ in again.results())
            left = len(again.open_frames())
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (count, left, again.dropped_count) == (frames - 2, 0, 2)
    assert most_bytes < 5 * frames


# ---------------------------------------------------------------- what users see


def test_a_journal_of_the_old_form_is_resumed(tmp_path: Path, quick: None) -> None:
    """Records were in the order of writing, and of two for a frame the last counted."""
    folder = tmp_path / "run"
    with opened(folder, None, resume=False) as made:
        for frame in range(6):
            made.write(frame, outputs(frame))
        made.drop(7)
        run = made._run
    whole = (folder / RECORDS).read_bytes()
    each = [whole[at : at + RECORD_BYTES] for at in range(0, len(whole), RECORD_BYTES)]
    stale = encode(FrameRecord(3, DONE, 77), run)
    (folder / RECORDS).write_bytes(stale + b"".join([each[7], *each[3:6], *each[:3]]) + b"torn")
    head = json.loads((folder / RUN).read_text())
    del head["segment_frames"]
    (folder / RUN).write_text(json.dumps({**head, "format": 1}))
    for _ in range(2):
        with opened(folder, None) as again:
            assert restored(again) == list(range(6))
            assert again.dropped() == ((7, 7),)
            assert (again.damaged, len(again.open_frames())) == (0, FRAMES - 7)
    assert json.loads((folder / RUN).read_text())["format"] == 2
    assert (folder / RECORDS).stat().st_mode & 0o777 == 0o600


def test_a_journal_that_was_begun_without_a_bound_cannot_be_given_one(
    tmp_path: Path, quick: None
) -> None:
    opened(tmp_path / "run", None, resume=False).close()
    with pytest.raises(BadInputError, match=r"begun without `keep`.*resume it without `keep`"):
        opened(tmp_path / "run")


def test_a_bound_that_no_result_fits_is_refused(tmp_path: Path, quick: None) -> None:
    with pytest.raises(
        BadInputError, match=r"keep: 0\.020 MB is too little; 0\.\d+ MB is the leas"
    ):
        opened(tmp_path / "run", 20_000, resume=False)
    assert not list((tmp_path / "run").iterdir())
    opened(tmp_path / "run", resume=False).close()
    with pytest.raises(BadInputError, match="in segments of 2 frames, as this journal has"):
        opened(tmp_path / "run", PAIR)


def test_the_disk_needs_room_for_the_bound_only(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = RunIdentity("model", "inputs", 10**7, SPECS)
    with opened(tmp_path / "run", resume=False, identity=identity) as made:
        list(made.results())
        monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": KEEP}))
        check_room(made, "--journal")
        monkeypatch.setattr(
            "shutil.disk_usage", lambda folder: type("Usage", (), {"free": KEEP // 2})
        )
        with pytest.raises(BadInputError, match="make room"):
            check_room(made, "--journal")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:],
        lambda content: b"",
        lambda content: b"00000000 {}",
    ],
)
def test_a_damaged_account_of_removed_results_is_a_sentence(
    tmp_path: Path, quick: None, damage: Callable[[bytes], bytes]
) -> None:
    with opened(tmp_path / "run", resume=False) as made:
        for frame in range(FRAMES):
            made.write(frame, outputs(frame))
    path = tmp_path / "run" / REMOVED
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadInputError, match=re.escape(f"{path}: cannot be read")):
        opened(tmp_path / "run")


def test_what_others_put_into_the_folder_stays(tmp_path: Path, quick: None) -> None:
    folder = tmp_path / "run"
    with opened(folder, resume=False) as made:
        made.write(0, outputs(0))
        (folder / "frames-000000000000" / "mine").write_text("mine")
        (folder / "frames-mine").mkdir()
        for frame in range(1, FRAMES):
            made.write(frame, outputs(frame))
    assert [path.name for path in (folder / "frames-000000000000").iterdir()] == ["mine"]
    with opened(folder) as again:
        assert not again.open_frames() or restored(again)
    assert (folder / "frames-mine").is_dir()
