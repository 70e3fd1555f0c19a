"""Keeps the service's state in one SQLite database, which survives the end of the process at any
moment: the generations that were applied, the releases that were good, and the history of events.

Each method is one transaction. One thread at a time may use a store; one process does, because
`open_state` locks the folder.

A service must not end because a disk is full. So facts (events, good releases, generations that
have served) wait in memory while they cannot be written, and `problem` says why. An operator's
changes are refused then: a change that is not kept is never reported as kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path

from launcher.errors import BadInputError, RunFailedError
from launcher.service.events import ModelRelease
from nodes.host.folders import user_folder

KEPT_GENERATIONS = 10
"""Generations that are kept in addition to those of the last good releases."""

KEPT_EVENTS = 10_000

DATABASE, LOCK, FILES = "state.sqlite3", "lock", "files"

DRAFT = ".draft-"
"""The prefix of a folder into which a model's files are being copied."""

_DRAFTS = (".control.json.*",)
"""Files that exist for a moment; a process that is killed may leave one behind."""

_MAKE_ROOM = "make room on its disk, or make it writable again"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS generations (
    number INTEGER PRIMARY KEY,
    applied_s REAL NOT NULL,
    path TEXT NOT NULL,
    text TEXT NOT NULL,
    models TEXT NOT NULL,
    nodes TEXT NOT NULL,
    origin TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS good (
    model TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    digest TEXT NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS served (
    number INTEGER PRIMARY KEY
) STRICT;
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s REAL NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
"""
APPLIED = "applied"

_FORMAT = 1
"""The format of the database; increased when an older program could misread it."""


@dataclass(frozen=True, slots=True)
class KeptModel:
    """A model of a generation.

    `content` identifies the network: no two contents have the same name and version. `files` is
    the name of the folder with its files; empty for a built-in network.
    """

    name: str
    version: str
    digest: str
    content: str
    files: str

    @property
    def release(self) -> ModelRelease:
        """The release as the core knows it."""
        return ModelRelease(self.name, self.version, self.digest)


@dataclass(frozen=True, slots=True)
class Generation:
    """A cluster.yaml that was applied: `text` is the cluster.yaml at `path` with absolute paths, in
    which the models are the files that the state folder keeps.
    """

    number: int
    applied_s: float
    path: str
    text: str
    models: tuple[KeptModel, ...]
    nodes: dict[str, str | None]
    """The address of each node; None for one whose agents the service starts."""
    origin: str = APPLIED
    """`applied`, or `rollback to generation 3`."""
    has_served: bool = field(default=False, compare=False)
    """Whether all that it wants has served at the same time."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An entry of the history; `at_s` is in seconds since 1970."""

    number: int
    at_s: float
    level: str
    text: str

    def as_json(self) -> dict[str, object]:
        """Return JSON data."""
        return asdict(self)


def default_folder(name: str) -> Path:
    """Return the folder of the state of the service called `name`."""
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    return user_folder("XDG_STATE_HOME", ".local/state") / "csdf-edge" / name


def system_folder(name: str) -> Path:
    """Return the folder of the state of the system's service called `name`."""
    return Path("/var/lib/csdf-edge") / name


def running_folders() -> list[Path]:
    """Return the state folders of the services that run on this machine and can be found: that
    of CSDF_EDGE_STATE, and the usual ones of this user and of the system."""
    given = os.environ.get("CSDF_EDGE_STATE")
    found = [] if given is None else [Path(given).absolute()]
    for usual in (default_folder("any").parent, system_folder("any").parent):
        with contextlib.suppress(OSError):  # it does not exist, or this user may not read it
            found += sorted(usual.iterdir())
    return [folder for folder in dict.fromkeys(found) if is_locked(folder)]


def is_locked(folder: Path) -> bool:
    """Whether a process keeps the service of this folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_events(folder: Path, most: int) -> list[StoredEvent]:
    """Return the last events of a service that may run. Raises `BadInputError`."""
    path = folder / DATABASE
    try:
        with closing(sqlite3.connect(path)) as database:
            return _last_events(database, 0, most)
    except sqlite3.Error as error:
        raise BadInputError(f"{path}: cannot be read: {error}") from None


@contextmanager
def open_state(folder: Path) -> Iterator[Store]:
    """Open the state in a folder, which is made if it is missing, and keep others out.

    Raises `BadInputError` if another process has it, or if it cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInputError(
            f"--state {str(folder)!r}: cannot be used: {error.strerror}; name another folder"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(
                f"{folder}: the service is already running; launch apply changes it, and launch "
                "down ends it"
            ) from None
        for draft in _DRAFTS:
            for path in folder.glob(draft):
                path.unlink(missing_ok=True)
        store = Store(folder)
        try:
            yield store
        finally:
            store.close()
    finally:
        os.close(descriptor)


class StateError(RunFailedError):
    """The state cannot be written now."""


class Store:
    """The database in a folder, and the files next to it; see the module."""

    def __init__(self, folder: Path) -> None:
        """Raises `BadInputError` for a file that is not a database of this program."""
        self.folder = folder
        self.files = folder / FILES
        self.problem = ""
        """Why something waits to be written; empty if nothing does."""
        self._unwritten: deque[tuple[str, tuple[object, ...]]] = deque(maxlen=2 * KEPT_EVENTS)
        path = folder / DATABASE
        try:
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            (format_,) = self._database.execute("PRAGMA user_version").fetchone()
            if format_ > _FORMAT:
                raise BadInputError(
                    f"{path}: was written by a later version of csdf-edge; install that again, or "
                    "name another folder by --state"
                )
            tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_schema")}
            self._database.executescript(_SCHEMA)
            if "generations" in tables and "served" not in tables:  # of an earlier version
                self._database.execute(
                    "INSERT INTO served SELECT number FROM generations "
                    "WHERE number < (SELECT max(number) FROM generations)"
                )
            if format_ < _FORMAT:
                self._database.execute(f"PRAGMA user_version = {_FORMAT}")
            self._served = {
                number for (number,) in self._database.execute("SELECT number FROM served")
            }
            self._last_event = _last_number(self._database)
            self._kept = self._read()
        except sqlite3.OperationalError as error:
            raise BadInputError(f"{path}: cannot be used ({error}); {_MAKE_ROOM}") from None
        except sqlite3.Error as error:
            raise BadInputError(
                f"{path}: is damaged, or not a database ({error}); restore it from a backup, or "
                "name another folder by --state"
            ) from None

    def close(self) -> None:
        """Close the database."""
        self.write()
        self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all of it or nothing; raises `StateError`, for a full disk say."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database
            self._database.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled it back itself
                self._database.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise StateError(
                    f"the state in {self.folder} cannot be written ({error}); {_MAKE_ROOM}"
                ) from None
            raise

    def write(self) -> None:
        """Write what waits; `problem` says whether it still does."""
        try:
            with self._transaction() as database:
                for statement, values in self._unwritten:
                    database.execute(statement, values)
        except StateError as error:
            self.problem = str(error)
        else:
            self._unwritten.clear()
            self.problem = ""

    def _note(self, statement: str, *values: object) -> None:
        self._unwritten.append((statement, values))
        self.write()

    # ------------------------------------------------------------ generations

    def add(self, generation: Generation) -> None:
        """Keep a generation, which is the last one from now on, and remove the oldest.

        Raises `StateError` if it cannot be written.
        """
        with self._transaction() as database:
            database.execute(
                "INSERT INTO generations VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    generation.number,
                    generation.applied_s,
                    generation.path,
                    generation.text,
                    json.dumps([asdict(model) for model in generation.models]),
                    json.dumps(generation.nodes),
                    generation.origin,
                ),
            )
            database.execute(
                "DELETE FROM generations WHERE number <= ? "
                "AND number NOT IN (SELECT generation FROM good) AND number <> ?",
                (generation.number - KEPT_GENERATIONS, max(self._served, default=0)),
            )
            database.execute(
                "DELETE FROM served WHERE number NOT IN (SELECT number FROM generations)"
            )
        self._kept = self._read()
        self._served &= {kept.number for kept in self._kept}
        self._remove_files()

    def generations(self) -> list[Generation]:
        """Return all kept generations, the oldest first."""
        return [replace(kept, has_served=kept.number in self._served) for kept in self._kept]

    def _read(self) -> list[Generation]:
        rows = self._database.execute(
            "SELECT number, applied_s, path, text, models, nodes, origin "
            "FROM generations ORDER BY number"
        )
        return [
            Generation(
                number,
                applied_s,
                path,
                text,
                tuple(KeptModel(**model) for model in json.loads(models)),
                json.loads(nodes),
                origin,
            )
            for number, applied_s, path, text, models, nodes, origin in rows
        ]

    def last(self) -> Generation | None:
        """Return the generation that was applied last."""
        return next(reversed(self.generations()), None)

    def note_served(self, number: int) -> None:
        """Note that all that a generation wants serves."""
        self._served.add(number)
        self._note("INSERT OR IGNORE INTO served VALUES (?)", number)

    def _remove_files(self) -> None:
        """Remove the files of models that no longer belong to a generation."""
        used = {model.files for kept in self._kept for model in kept.models}
        for folder in self.files.iterdir() if self.files.is_dir() else ():
            if folder.name not in used and _is_ours(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    # ------------------------------------------------------------ good releases

    def note_good(self, release: ModelRelease) -> None:
        """Keep a release that serves, to which its model falls back after a failure."""
        found = [kept.number for kept in self._kept if _has(kept, release)]
        if not found:  # a rollback must be possible only to kept generations
            return
        self._note(
            "INSERT OR REPLACE INTO good VALUES (?, ?, ?, ?)",
            *(release.model, release.version, release.digest, found[-1]),
        )

    def forget_good(self, model: str) -> None:
        """Forget the good release of a model that is no longer wanted."""
        self._note("DELETE FROM good WHERE model = ?", model)

    def good(self) -> list[ModelRelease]:
        """Return the release of each model that served last."""
        rows = self._database.execute("SELECT model, version, digest FROM good")
        return [ModelRelease(*row) for row in rows]

    # ------------------------------------------------------------ history

    def add_event(self, at_s: float, level: str, text: str) -> StoredEvent:
        """Keep an event, and remove the oldest beyond the bound."""
        self._last_event += 1
        event = StoredEvent(self._last_event, at_s, level, text)
        self._unwritten.append(("INSERT INTO events VALUES (?, ?, ?, ?)", astuple(event)))
        self._note("DELETE FROM events WHERE number <= ?", event.number - KEPT_EVENTS)
        return event

    def events(self, after: int = 0, most: int = KEPT_EVENTS) -> list[StoredEvent]:
        """Return the last events, the oldest first, at most `most`."""
        return _last_events(self._database, after, most)


def _last_events(database: sqlite3.Connection, after: int, most: int) -> list[StoredEvent]:
    rows = database.execute(
        "SELECT number, at_s, level, text FROM events WHERE number > ? "
        "ORDER BY number DESC LIMIT ?",
        (after, most),
    ).fetchall()
    return [StoredEvent(*row) for row in reversed(rows)]


def _last_number(database: sqlite3.Connection) -> int:
    """The number of the last event, including removed ones."""
    found = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return 0 if found is None else int(found[0])


def _is_ours(name: str) -> bool:
    """Whether a folder was made here: for a model's files, or as a draft of them."""
    return name.startswith(DRAFT) or re.fullmatch(r"[0-9a-f]{64}", name) is not None


def _has(generation: Generation, release: ModelRelease) -> bool:
    return any(
        (model.name, model.digest) == (release.model, release.digest) for model in generation.models
    )
