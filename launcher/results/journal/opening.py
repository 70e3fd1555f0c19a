"""Opens or makes the folder of a journal, and refuses a journal of another run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.errors import BadInputError
from launcher.results.journal.identity import RunIdentity, differences
from launcher.results.journal.journal import Journal, sync_folder
from launcher.results.journal.records import RUN_BYTES
from launcher.small_files import read_json
from launcher.whole_files import advised

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
