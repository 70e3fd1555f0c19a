"""Opens or makes the folder of a journal, and refuses a journal of another run.

The journal that `journal:` or `--journal` asks for, and its part of the report.
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
from launcher.files import advised, read_json
from launcher.inputs.frames import Inputs
from launcher.results.handling import Results
from launcher.results.journal.identity import RunIdentity, differences
from launcher.results.journal.journal import RUN_BYTES, Journal, sync_folder
from launcher.results.journal.stacks import output_specs
from launcher.results.report import Accuracy, JournalReport, rows_of, verdict_as_json
from launcher.results.verify import Agreement
from launcher.run.request import Request

if TYPE_CHECKING:
    from cnn.model import Model

RUN, DRAFT = "run.json", "run.json.part"
FORMAT = 1


def open_journal(folder: Path, identity: RunIdentity, *, resume: bool, where: str) -> Journal:
    """The journal in `folder`, made if there is none; `resume` goes on with one of this run.

    Raises `BadInputError`, beginning with `where`: the folder is that of a run and `resume` is not
    given, of another run, in use, full of other things, or cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            return _open(folder, identity, where, resume=resume)
    except BlockingIOError:
        raise BadInputError(f"{where}: another launch is writing to {str(folder)!r}") from None
    except OSError as error:
        what = advised(error, "name a folder on another disk")
        raise BadInputError(
            f"{where}: {str(folder)!r} cannot be used as a journal: {what}"
        ) from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of two launches that begin at once, one makes `run.json`; `BlockingIOError` for the other."""
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
            "--resume goes on with it, another folder begins anew"
        )
    run, known = made
    if found := differences(known, identity):
        raise BadInputError(
            f"{where}: {str(folder)!r} is the journal of another run: {'; '.join(found)}; "
            "restore what it was, or begin anew in another folder"
        )
    return Journal(folder, identity, run)


def check_room(journal: Journal, where: str) -> None:
    """Raise `BadInputError` if the disk has no room for the results that are still to come."""
    need = len(journal.open_frames()) * journal.frame_bytes
    free = shutil.disk_usage(journal.folder).free
    if need > free:
        raise BadInputError(
            f"{where}: the results to come take {need / 1e6:.1f} MB in {str(journal.folder)!r}, "
            f"where {free / 1e6:.1f} MB are free; make room, or name a folder on another disk"
        )


def _read_run(folder: Path, where: str) -> tuple[bytes, RunIdentity] | None:
    """The run whose journal the folder is; None if it is none."""
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
                f"{path}: is of format {data['format']}, this launch knows {FORMAT}"
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
    """Make an empty journal: at no moment is there half of its `run.json`."""
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
class Complete:
    """A journal that has everything already: nothing was left to run."""

    frames: int
    dropped: tuple[int, ...]
    journal: JournalReport
    agreement: Agreement | None
    accuracy: Accuracy | None

    @property
    def agrees(self) -> bool:
        """Whether the comparison with the whole model, if there was one, was good."""
        return self.agreement is None or self.agreement.agrees

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data, with the names that a run's report has."""
        return {
            "frames": 0,
            "dropped": len(self.dropped),
            "dropped_frames": rows_of(self.dropped),
            "journal": asdict(self.journal),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            **verdict_as_json(self.agreement),
        }

    def text(self) -> str:
        """For people."""
        dropped = f" ({len(self.dropped)} were dropped)" if self.dropped else ""
        return (
            f"all {self.frames} frames are settled{dropped}, and their results are in "
            f"{self.journal.folder}: nothing was left to run"
        )


def run_journal(request: Request, cluster: Cluster, model: Model, inputs: Inputs) -> Journal | None:
    """The journal that the user asks for, opened; None if none is asked for.

    Raises `BadInputError` if it is not this run's, or `--resume` has nothing to go on with.
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
    where = place(request, cluster)
    return open_journal(cluster.path(named), identity, resume=request.resume, where=where)


def place(request: Request, cluster: Cluster) -> str:
    """Where the user named the journal."""
    return "--journal" if request.journal is not None else cluster.source.where(("journal",))


def journal_report(results: Results) -> JournalReport | None:
    """The journal's part of the report after a run."""
    journal = results.journal
    if journal is None:
        return None
    return JournalReport(str(journal.folder), journal.done, results.restored, journal.damaged)
