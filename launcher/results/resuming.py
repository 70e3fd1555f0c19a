"""Opens or creates the journal that `journal:` or `--journal` names, and reports on it.

A journal of another run, and a folder that is in use or holds other files, is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.config.load import Cluster
from launcher.core.stream import ENDLESS
from launcher.errors import EXIT_FAILED, EXIT_FINE, BadInputError
from launcher.files import read_json, with_advice
from launcher.inputs.frames import Inputs
from launcher.quantities import megabytes
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import Agreement
from launcher.results.journal.identity import RunIdentity, differences
from launcher.results.journal.journal import MOST_SEGMENTS, RUN, Journal, JournalLayout
from launcher.results.journal.records import RECORD_BYTES, RUN_BYTES, decode, encode
from launcher.results.journal.result_files import OutputSpec, output_specs, write_all
from launcher.results.journal.segment import RECORDS, segment_bytes, sync_folder, used_bytes
from launcher.results.report import Accuracy, JournalReport, removal_text, verdict_as_json
from launcher.run.request import Request

if TYPE_CHECKING:
    from cnn.model import Model

DRAFT, RECORDS_DRAFT = "run.json.part", "journal.part"
FORMAT = 2
OLD_FORMAT = 1
"""Its records were in the order of writing; they are put into that of frames when it is opened."""


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The content of `run.json`: the run's number and identity, and the frames of a segment."""

    run: bytes
    identity: RunIdentity
    segment_frames: int | None
    is_old: bool = False


def open_journal(
    folder: Path,
    identity: RunIdentity,
    *,
    resume: bool,
    where: str,
    keep_bytes: int | None = None,
) -> Journal:
    """Open the journal in `folder`, or create it; `resume` permits that it has results.

    With `keep_bytes` it removes the oldest results beyond this bound. Raises `BadInputError`, which
    begins with `where`, if the folder has results and `resume` is not given, belongs to another
    run, is in use, holds other files, or cannot be written to, or if the bound is too small.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            return _open(folder, identity, where, keep_bytes, resume=resume)
    except BlockingIOError:
        raise BadInputError(f"{where}: another launch is writing to {str(folder)!r}") from None
    except OSError as error:
        what = with_advice(error, "name a folder on another disk")
        raise BadInputError(
            f"{where}: {str(folder)!r} cannot be used as a journal: {what}"
        ) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that of two launches only one makes `run.json`; raises `BlockingIOError` in
    the other."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _open(
    folder: Path, identity: RunIdentity, where: str, keep_bytes: int | None, *, resume: bool
) -> Journal:
    head = _read_head(folder, where)
    if head is None:
        segment_frames = None
        if keep_bytes is not None:
            segment_frames = _frames_within(identity, keep_bytes // MOST_SEGMENTS)
            _check_bound(identity.outputs, where, keep_bytes, max(1, segment_frames), MOST_SEGMENTS)
        head = JournalHead(secrets.token_bytes(RUN_BYTES), identity, segment_frames)
        _write_head(folder, head)
    elif not resume:
        raise BadInputError(
            f"{where}: {str(folder)!r} already holds the results of a run; --resume continues it, "
            "another folder begins a new run"
        )
    if found := differences(head.identity, identity):
        raise BadInputError(
            f"{where}: {str(folder)!r} is the journal of another run: {'; '.join(found)}; "
            "restore what it was, or begin a new run in another folder"
        )
    if keep_bytes is not None:
        if head.segment_frames is None:
            raise BadInputError(
                f"{where}: {str(folder)!r} was begun without `keep`, and its results are in files "
                "that cannot be shortened; resume it without `keep`, or begin a new run in another "
                "folder"
            )
        _check_bound(identity.outputs, where, keep_bytes, head.segment_frames, 2)
    if head.is_old:
        _order_records(folder, head)
        _write_head(folder, head)
    return Journal(folder, identity, head.run, JournalLayout(head.segment_frames, keep_bytes))


def _frames_within(identity: RunIdentity, size_bytes: int) -> int:
    """Return the most frames whose segment takes at most `size_bytes`, or 0 if one takes more."""
    return bisect_right(
        range(1, identity.frames + 1),
        size_bytes,
        key=lambda frames: segment_bytes(identity.outputs, frames),
    )


def _check_bound(
    outputs: tuple[OutputSpec, ...], where: str, keep_bytes: int, frames: int, segments: int
) -> None:
    least = segments * segment_bytes(outputs, frames)
    if keep_bytes < least:
        raise BadInputError(
            f"{where}: keep: {keep_bytes / 1e6:.3f} MB is too little; {least / 1e6:.3f} MB is the "
            "least for results of this size"
            + (f" in segments of {frames} frames, as this journal has" if frames > 1 else "")
        )


def check_room(journal: Journal, where: str) -> None:
    """Raise `BadInputError` if the disk has no room for the remaining results."""
    need = len(journal.open_frames()) * journal.frame_bytes
    if journal.keep_bytes is not None:
        need = min(need, journal.keep_bytes - used_bytes(journal.folder))
    free = shutil.disk_usage(journal.folder).free
    if need > free:
        raise BadInputError(
            f"{where}: the remaining results need {megabytes(need)} in {str(journal.folder)!r}, "
            f"where {megabytes(free)} are free; make room, or name a folder on another disk"
        )


def _read_head(folder: Path, where: str) -> JournalHead | None:
    """Read the head of the journal; None if the folder is empty."""
    path = folder / RUN
    if not path.exists():
        if any(found.name != DRAFT for found in folder.iterdir()):
            raise BadInputError(
                f"{where}: {str(folder)!r} is neither empty nor a journal; name an empty folder"
            )
        return None
    _, data = read_json(path)
    try:
        if data["format"] not in (OLD_FORMAT, FORMAT):
            raise BadInputError(
                f"{path}: has format {data['format']}, and this version of launch reads {FORMAT}"
            )
        run = bytes.fromhex(data["run"])
        if len(run) != RUN_BYTES:
            raise ValueError(data["run"])
        frames = data.get("segment_frames")
        if frames is not None and int(frames) < 1:
            raise ValueError(frames)
        return JournalHead(
            run,
            RunIdentity.from_json(data["identity"]),
            None if frames is None else int(frames),
            data["format"] == OLD_FORMAT,
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInputError(
            f"{path}: cannot be read as the head of a journal ({type(error).__name__}: {error})"
        ) from None


def _order_records(folder: Path, head: JournalHead) -> None:
    """Put records in the order of writing into that of frames; of one frame's the last counts.

    Does nothing to records that have this order already. Raises `BlockingIOError` if another launch
    has them open.
    """
    path, draft = folder / RECORDS, folder / RECORDS_DRAFT
    if not path.exists():
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with path.open("rb") as file, open(os.open(draft, flags, 0o600), "wb") as ordered:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        while data := file.read(RECORD_BYTES << 12):
            for _, record in decode(data, head.run):
                if record.frame < head.identity.frames:
                    at = record.frame * RECORD_BYTES
                    write_all(ordered.fileno(), encode(record, head.run), at)
        os.fsync(ordered.fileno())
    draft.replace(path)
    sync_folder(folder)


def _write_head(folder: Path, head: JournalHead) -> None:
    """Write `run.json`, which appears as a whole."""
    data = {
        "format": FORMAT,
        "run": head.run.hex(),
        "segment_frames": head.segment_frames,
        "identity": head.identity.as_json(),
    }
    draft = folder / DRAFT
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(folder / RUN)
    sync_folder(folder)


@dataclass(frozen=True)
class CompletedRun:
    """A run whose journal has all frames already, so that nothing was left to run."""

    frames: int
    dropped: int
    dropped_frames: tuple[tuple[int, int], ...]
    journal: JournalReport
    agreement: Agreement | None
    accuracy: Accuracy | None

    @property
    def problem(self) -> str | None:
        """A sentence if a result differs from the whole model's."""
        found = self.agreement
        return None if found is None or found.agrees else found.disagreement

    @property
    def exit_code(self) -> int:
        """0 unless there is a problem."""
        return EXIT_FINE if self.problem is None else EXIT_FAILED

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data, with the names of a run's report."""
        return {
            "frames": 0,
            "dropped": self.dropped,
            "dropped_frames": self.dropped_frames,
            "journal": asdict(self.journal),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            **verdict_as_json(self.agreement),
        }

    def text(self) -> str:
        """Return a sentence for people."""
        dropped = f" ({self.dropped} were dropped)" if self.dropped else ""
        kept = "their results" if not self.journal.removed else f"{self.journal.saved} results"
        return (
            f"all {self.frames} frames are settled{dropped}, and {kept} are in "
            f"{self.journal.folder}: nothing was left to run" + removal_text(self.journal)
        )


def run_journal(
    request: Request, cluster: Cluster, model: Model, inputs: Inputs | None
) -> Journal | None:
    """Open the journal that the user names; return None if there is none.

    Without `inputs` it is that of a source. Raises `BadInputError` if it is another run's, or if
    `--resume` is given without a journal.
    """
    named = cluster.config.journal
    if named is None:
        if request.resume:
            raise BadInputError(
                "--resume: there is no journal to continue; name its folder by --journal, or as "
                "`journal` in cluster.yaml, from the first launch on"
            )
        return None
    tensors = [model.network.tensors[name] for name in model.network.outputs]
    specs = output_specs(tensors)
    where = journal_place(request, cluster)
    if inputs is not None:
        identity = RunIdentity(model.digest, inputs.digest(), len(inputs), specs)
    else:
        frames = _source_frames(cluster, where, is_bounded=named.keep is not None)
        identity = RunIdentity(model.digest, _source_digest(cluster), frames, specs)
    return open_journal(
        cluster.path(named.folder),
        identity,
        resume=request.resume,
        where=where,
        keep_bytes=named.keep,
    )


def _source_frames(cluster: Cluster, where: str, *, is_bounded: bool) -> int:
    """Return for how many frames of a source a journal is begun; with a bound it needs no end."""
    frames = cluster.config.frames
    if is_bounded:
        return ENDLESS
    if frames is None:
        raise BadInputError(
            f"{where}: the results of a source without an end need a bound: write `keep`, such as "
            "journal: {folder: kept, keep: 10GB}, or write `frames`, their number"
        )
    return frames


def _source_digest(cluster: Cluster) -> str:
    """Return a digest of what the user wrote: which source, and how its images are fitted."""
    written = cluster.config.input.model_dump(mode="json")
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def journal_place(request: Request, cluster: Cluster) -> str:
    """Say where the user named the journal: an option, or a line of `cluster.yaml`."""
    return "--journal" if request.journal is not None else cluster.source.where(("journal",))


def journal_report(results: Results) -> JournalReport | None:
    """Return the journal's part of the report; None without a journal."""
    journal = results.journal
    if journal is None:
        return None
    removed = journal.removed
    return JournalReport(
        folder=str(journal.folder),
        saved=journal.done,
        resumed=results.restored,
        damaged=journal.damaged,
        removed=removed.done,
        removed_before=journal.removed_before,
        removed_frames=removed.settled,
    )
