"""Keeps results and progress of a run on disk, so that it can be interrupted anywhere and resumed.

A journal is a folder. `run.json` identifies the run. Its results are in segments, see
`launcher.results.journal.segment`. A journal without a bound is itself one segment of all frames,
whose files have their full length from the beginning, so that NumPy can read them at any time. A
journal with a bound has folders `frames-NNN`, each a segment that begins with frame NNN, and
removes the oldest of them (those with the lowest frames).

A result is written as soon as the user has it, and survives the end of the process, `kill -9`
included. Once a second a thread writes what is new through to the disk (fdatasync), so a power cut
loses at most the results since then. The remains of a crash are recognised by checksums, and only
the frames concerned are computed again.

That thread also removes results, whenever the run begins another segment. For each segment it first
writes to the file `removed` that the segment's frames are settled, and then deletes the segment. A
crash in between leaves a segment whose frames that file has too: they count as removed, and the
next removal completes it. Memory holds ranges of frames, and nothing for each frame.

The bound holds for the disk but for one segment: at most two segments are open for writing, and the
others are cut down to the bound less two full segments before a third is begun.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType

from launcher.core.stream import ENDLESS
from launcher.errors import RunFailedError
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.ranges import FrameRanges, FrameSequence
from launcher.results.journal.records import DONE, DROPPED, RECORD_BYTES, FrameRecord
from launcher.results.journal.removed import REMOVED, Removed, read_removed, write_removed
from launcher.results.journal.result_files import as_arrays
from launcher.results.journal.segment import (
    Segment,
    delete_segment,
    segment_bytes,
    used_bytes,
)
from launcher.threads import in_thread
from nodes.protocol.payload import Array

RUN = "run.json"
"""The name of the file that identifies the run; the lock on it is the journal's."""

SEGMENT_PREFIX = "frames-"

SYNC_S = 1.0
"""How often written data is written through to the disk."""

MOST_SEGMENTS = 8
"""Into how many segments a bound is divided: an eighth of it may be free."""

_MOST_OPEN = 2
"""A source that drops frames is ahead of the results: two segments are written in turns."""


@dataclass(frozen=True, slots=True)
class JournalLayout:
    """How a journal's results are divided: `segment_frames` is None if they are not."""

    segment_frames: int | None = None
    keep_bytes: int | None = None
    """The bound of this launch on what the journal takes on disk; None for none."""


class Journal:
    """The journal of one run, locked for this process; a context manager that closes it."""

    def __init__(
        self,
        folder: Path,
        identity: RunIdentity,
        run: bytes,
        layout: JournalLayout = JournalLayout(),
    ) -> None:
        """Open the folder that `launcher.results.resuming` found or made.

        Raises `BlockingIOError` if another process has it open, `BadInputError` if its account of
        removed results is damaged, else `OSError` as the disk does.
        """
        self.folder = folder
        self.frames = identity.frames
        self.keep_bytes = layout.keep_bytes
        self.damaged = 0
        """How many frames have a record but no valid result; they are computed again."""
        self.before_removal: Callable[[], None] = lambda: None
        """Called in another thread before results are removed; raises `OSError` to prevent it."""
        self._run = run
        self._outputs = identity.outputs
        self._divided = layout.segment_frames is not None
        self._segment_frames = layout.segment_frames or max(1, self.frames)
        self._done = 0
        self._dropped = FrameRanges()
        self._in_a_row = False
        self._problem: BaseException | None = None
        self._dirty = threading.Event()
        self._closed = False
        self._open: dict[int, Segment] = {}
        self._latest = 0
        self._leaving: SimpleQueue[tuple[Segment, ...] | None] = SimpleQueue()
        self._within_bound = threading.Event()
        self._within_bound.set()
        self._settling = threading.Lock()  # of the ranges
        self._placing = threading.Lock()  # of which segments are open, and which exist
        with contextlib.ExitStack() as opened:
            lock = os.open(folder / RUN, os.O_RDONLY | os.O_CLOEXEC)
            opened.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._removed = read_removed(folder, run, len(self._outputs))
            self._settled = FrameRanges(self._removed.settled)
            if not self._divided:
                self._begin(0).sync()
            self._opened = opened.pop_all()
        self.removed_before = self._removed.done
        """How many results earlier launches removed."""
        self._working = in_thread(self._work, "journal")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def frame_bytes(self) -> int:
        """The bytes that a frame takes on disk."""
        return sum(spec.row_bytes for spec in self._outputs) + RECORD_BYTES

    # ------------------------------------------------------------ reading

    def results(self, *, in_a_row: bool = False) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield (frame, outputs by name) for every valid result that is kept, in frame order.

        A frame counts as settled once this has passed it, so exhaust the iterator before calling
        `open_frames`. With `in_a_row`, results after the first frame without one are not valid, and
        the last result that is removed from now on is kept for `last_removed`.
        """
        self._in_a_row = in_a_row
        gone = FrameRanges(self._removed.settled)
        for first in self._on_disk():
            with contextlib.ExitStack() as stack:
                segment = self._open.get(first)
                if segment is None:
                    segment = self._segment(first)
                    stack.callback(segment.close)
                for record in segment.records():
                    if record.frame in gone:
                        continue
                    rows = self._restored(segment, record)
                    if rows is not None:
                        yield record.frame, as_arrays(self._outputs, rows)

    def _restored(self, segment: Segment, record: FrameRecord) -> list[bytes] | None:
        """Settle a frame as its record says; return its result if it has a valid one."""
        if record.kind == DROPPED:
            self._dropped.add(record.frame)
            self._settled.add(record.frame)
            return None
        if self._in_a_row and self._settled.in_a_row < record.frame:
            return None
        rows = segment.rows(record)
        if rows is None:
            self.damaged += 1
            return None
        self._settled.add(record.frame)
        self._done += 1
        return rows

    def last_removed(self) -> dict[str, Array] | None:
        """Return the result of the highest frame that earlier launches removed.

        None if none was removed, or if the results were not asked for `in_a_row` then.
        """
        rows = self._removed.last_rows
        return as_arrays(self._outputs, rows) if rows else None

    def dropped(self) -> tuple[tuple[int, int], ...]:
        """The ranges of frames that were dropped, in all launches of this run.

        The oldest of those whose segments were removed may be missing; `dropped_count` has them.
        """
        with self._settling:
            found = FrameRanges(self._removed.dropped_ranges)
            for dropped in self._dropped.ranges():
                found.add(*dropped)
        return found.ranges()

    @property
    def dropped_count(self) -> int:
        """How many frames were dropped, in all launches of this run."""
        with self._settling:
            return self._removed.dropped + len(self._dropped)

    @property
    def done(self) -> int:
        """How many results are kept."""
        with self._settling:
            return self._done

    @property
    def removed(self) -> Removed:
        """The settled frames whose results were removed, in all launches of this run."""
        with self._settling:
            return self._removed

    @property
    def settled(self) -> FrameRanges:
        """A copy of the frames that are settled."""
        with self._settling:
            return FrameRanges(self._settled.ranges())

    def open_frames(self) -> FrameSequence:
        """The frames that are not settled, in order."""
        return FrameSequence(self.settled.gaps(0, self.frames - 1))

    # ------------------------------------------------------------ writing

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Save one frame's result; raises `RunFailedError` if it cannot be written.

        The arrays must have the dtypes and shapes with which the journal was opened.
        """
        if frame in self._settled:
            raise RuntimeError(f"frame {frame} is settled already")
        try:
            self._writable(frame).write(frame, outputs)
        except OSError as error:
            raise self._failed(f"frame {frame}: its result", error) from error
        with self._settling:
            self._settled.add(frame)
            self._done += 1
        self._dirty.set()

    def drop(self, frame: int) -> None:
        """Record that a frame was dropped and will have no result."""
        try:
            self._writable(frame).drop(frame)
        except OSError as error:
            raise self._failed(f"frame {frame}: that it was dropped", error) from error
        with self._settling:
            self._settled.add(frame)
            self._dropped.add(frame)
        self._dirty.set()

    def _failed(self, what: str, error: OSError) -> RunFailedError:
        with self._settling:
            saved = self._done + self._removed.done
        of = "" if self.frames == ENDLESS else f" of {self.frames}"
        return RunFailedError(
            f"{what} cannot be kept in the journal {str(self.folder)!r}: {error.strerror}; "
            f"{saved}{of} are saved, and launch --resume continues from there"
        )

    # ------------------------------------------------------------ segments

    def _place(self, first: int) -> Path:
        return self.folder / f"{SEGMENT_PREFIX}{first:012d}" if self._divided else self.folder

    def _on_disk(self) -> list[int]:
        """The existing segments, by their first frames, the oldest first."""
        if not self._divided:
            return [0]
        found = []
        for path in self.folder.glob(f"{SEGMENT_PREFIX}*"):
            number = path.name.removeprefix(SEGMENT_PREFIX)
            if number.isascii() and number.isdigit() and path == self._place(int(number)):
                found.append(int(number))
        wanted = range(0, self.frames, self._segment_frames)
        return sorted(first for first in found if first in wanted)

    def _segment(self, first: int) -> Segment:
        frames = min(self._segment_frames, self.frames - first)
        return Segment(self._place(first), self._outputs, self._run, first, frames)

    def _writable(self, frame: int) -> Segment:
        """Return the open segment of a frame; raises `OSError`."""
        if self._problem is not None:
            raise self._problem
        first = frame - frame % self._segment_frames
        segment = self._open.get(first) or self._begin(first)
        self._latest = first
        return segment

    def _begin(self, first: int) -> Segment:
        """Open a segment; close another one in its place, and have the oldest removed."""
        self._within_bound.wait()
        if self._problem is not None:
            raise self._problem
        is_first = not self._open
        with self._placing:
            leaving: tuple[Segment, ...] = ()
            if len(self._open) == _MOST_OPEN:
                (other,) = self._open.keys() - {self._latest}
                leaving = (self._open.pop(other),)
            segment = self._open[first] = self._segment(first)
        self._within_bound.clear()
        self._leaving.put(leaving)
        if is_first and self._divided:  # an earlier launch may have had a larger bound
            self._within_bound.wait()
        return segment

    # ------------------------------------------------------------ durability

    def _work(self) -> None:
        """Write through to the disk, close segments and remove the oldest, in a thread."""
        while True:
            leaving: tuple[Segment, ...] | None = ()
            begun = True
            try:
                leaving = self._leaving.get(timeout=SYNC_S)
            except Empty:
                begun = False
            if leaving is None:
                return
            try:
                for segment in leaving:
                    segment.sync()
                if begun:
                    self._remove_oldest()
                if self._dirty.is_set():
                    self._sync()
            except BaseException as error:  # noqa: BLE001 - the next write raises it
                self._problem = error
            finally:
                for segment in leaving:
                    segment.close()
                if begun:
                    self._within_bound.set()

    def _sync(self) -> None:
        self._dirty.clear()
        with self._placing:
            segments = tuple(self._open.values())
        for segment in segments:
            segment.sync()

    def close(self) -> None:
        """Write everything through to the disk and close; raises `RunFailedError` if it fails."""
        if self._closed:
            return
        self._closed = True
        self._leaving.put(None)
        try:
            self._working.result()
            self._sync()
            if self._problem is not None:
                raise self._problem
        except OSError as error:
            raise self._failed("its last results", error) from error
        finally:
            for segment in self._open.values():
                segment.close()
            self._opened.close()

    # ------------------------------------------------------------ retention

    def _remove_oldest(self) -> None:
        """Remove the oldest closed segments until all fit the bound with the open ones full."""
        if self.keep_bytes is None or not self._divided:
            return
        with self._placing:
            is_open = set(self._open)
        full = segment_bytes(self._outputs, self._segment_frames)
        room = self.keep_bytes - len(is_open) * full - used_bytes(self.folder / REMOVED)
        closed = {
            first: used_bytes(self._place(first))
            for first in self._on_disk()
            if first not in is_open
        }
        for first in sorted(closed):
            if sum(closed.values()) <= room:
                return
            with self._placing:
                if first not in self._open:  # it may have been opened again
                    self._remove(first)
            del closed[first]

    def _remove(self, first: int) -> None:
        last = first + self._segment_frames - 1
        with self._settling:
            settled = self._settled.between(first, last)
            dropped = self._dropped.between(first, last)
        removed = self._removed.and_these(settled, dropped)
        if self._in_a_row:
            removed = self._with_last_result(removed, first, settled)
        self.before_removal()
        write_removed(self.folder, self._run, removed)
        with self._settling:
            self._done -= removed.done - self._removed.done
            self._dropped = self._dropped.without(FrameRanges([(first, last)]))
            self._removed = removed
        delete_segment(self._place(first), self._outputs)

    def _with_last_result(self, removed: Removed, first: int, settled: FrameRanges) -> Removed:
        """Add the last of the settled results of a segment, which has the state after it."""
        with contextlib.closing(self._segment(first)) as segment:
            last = None
            for record in segment.records():
                if record.kind == DONE and record.frame in settled:
                    last = record
            if last is None or (removed.last_frame or -1) >= last.frame:
                return removed
            rows = segment.rows(last)
        if rows is None:
            raise OSError(errno.EIO, f"the result of frame {last.frame} was damaged on the disk")
        return replace(removed, last_frame=last.frame, last_rows=tuple(rows))
