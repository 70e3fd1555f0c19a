"""Opens or creates the journal that `journal:` or `--journal` names, and reports on it.

A journal of another run, and a folder that is in use or holds other files, is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.config.load import Cluster
from launcher.errors import BadInputError
from launcher.files import read_json, with_advice
from launcher.inputs.frames import Inputs
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import Agreement
from launcher.results.journal.identity import RunIdentity, differences
from launcher.results.journal.journal import RUN_BYTES, Journal, sync_folder
from launcher.results.journal.result_files import output_specs
from launcher.results.report import Accuracy, JournalReport, frame_ranges, verdict_as_json
from launcher.run.request import Request

if TYPE_CHECKING:
    from cnn.model import Model

RUN, DRAFT = "run.json", "run.json.part"
FORMAT = 1


def open_journal(folder: Path, identity: RunIdentity, *, resume: bool, where: str) -> Journal:
    """Open the journal in `folder`, or create it; `resume` permits that it has results.

    Raises `BadInputError`, which begins with `where`, if the folder has results and `resume` is not
    given, belongs to another run, is in use, holds other files, or cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            return _open(folder, identity, where, resume=resume)
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


def _open(folder: Path, identity: RunIdentity, where: str, *, resume: bool) -> Journal:
    made = _read_run(folder, where)
    if made is None:
        made = _begin(folder, identity)
    elif not resume:
        raise BadInputError(
            f"{where}: {str(folder)!r} holds the results of a run already; "
            "--resume goes on with it, another folder begins a new run"
        )
    run, known = made
    if found := differences(known, identity):
        raise BadInputError(
            f"{where}: {str(folder)!r} is the journal of another run: {'; '.join(found)}; "
            "restore what it was, or begin a new run in another folder"
        )
    return Journal(folder, identity, run)


def check_room(journal: Journal, where: str) -> None:
    """Raise `BadInputError` if the disk has no room for the remaining results."""
    need = len(journal.open_frames()) * journal.frame_bytes
    free = shutil.disk_usage(journal.folder).free
    if need > free:
        raise BadInputError(
            f"{where}: the remaining results need {need / 1e6:.1f} MB in {str(journal.folder)!r}, "
            f"where {free / 1e6:.1f} MB are free; make room, or name a folder on another disk"
        )


def _read_run(folder: Path, where: str) -> tuple[bytes, RunIdentity] | None:
    """Read the number and identity of the journal's run; None if the folder is empty."""
    path = folder / RUN
    if not path.exists():
        if any(found.name != DRAFT for found in folder.iterdir()):
            raise BadInputError(
                f"{where}: {str(folder)!r} is neither empty nor a journal; name a folder of its own"
            )
        return None
    _, data = read_json(path)
    try:
        if data["format"] != FORMAT:
            raise BadInputError(
                f"{path}: has format {data['format']}, and this version of launch reads {FORMAT}"
            )
        run = bytes.fromhex(data["run"])
        if len(run) != RUN_BYTES:
            raise ValueError(data["run"])
        return run, RunIdentity.from_json(data["identity"])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInputError(
            f"{path}: cannot be read as the head of a journal ({type(error).__name__}: {error})"
        ) from None


def _begin(folder: Path, identity: RunIdentity) -> tuple[bytes, RunIdentity]:
    """Create an empty journal; its `run.json` appears as a whole."""
    run = secrets.token_bytes(RUN_BYTES)
    data = {"format": FORMAT, "run": run.hex(), "identity": identity.as_json()}
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
    return run, identity


@dataclass(frozen=True)
class CompletedRun:
    """A run whose journal has all frames already, so that nothing was left to run."""

    frames: int
    dropped: tuple[int, ...]
    journal: JournalReport
    agreement: Agreement | None
    accuracy: Accuracy | None

    @property
    def agrees(self) -> bool:
        """Whether the results agree with the whole model's; True if they were not compared."""
        return self.agreement is None or self.agreement.agrees

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data, with the names of a run's report."""
        return {
            "frames": 0,
            "dropped": len(self.dropped),
            "dropped_frames": frame_ranges(self.dropped),
            "journal": asdict(self.journal),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            **verdict_as_json(self.agreement),
        }

    def text(self) -> str:
        """Return a sentence for people."""
        dropped = f" ({len(self.dropped)} were dropped)" if self.dropped else ""
        return (
            f"all {self.frames} frames are settled{dropped}, and their results are in "
            f"{self.journal.folder}: nothing was left to run"
        )


def run_journal(request: Request, cluster: Cluster, model: Model, inputs: Inputs) -> Journal | None:
    """Open the journal that the user names; return None if there is none.

    Raises `BadInputError` if it is another run's, or if `--resume` is given without a journal.
    """
    named = cluster.config.journal
    if named is None:
        if request.resume:
            raise BadInputError(
                "--resume: there is no journal to go on with; name its folder by --journal, "
                "or as `journal` in cluster.yaml, from the first launch on"
            )
        return None
    tensors = [model.network.tensors[name] for name in model.network.outputs]
    specs = output_specs(tensors)
    identity = RunIdentity(model.digest, inputs.digest(), len(inputs), specs)
    where = journal_place(request, cluster)
    return open_journal(cluster.path(named), identity, resume=request.resume, where=where)


def journal_place(request: Request, cluster: Cluster) -> str:
    """Say where the user named the journal: an option, or a line of `cluster.yaml`."""
    return "--journal" if request.journal is not None else cluster.source.where(("journal",))


def journal_report(results: Results) -> JournalReport | None:
    """Return the journal's part of the report; None without a journal."""
    journal = results.journal
    if journal is None:
        return None
    return JournalReport(str(journal.folder), journal.done, results.restored, journal.damaged)
