"""The database of a sweep's studies: a SQLite file, or any that SQLAlchemy can reach.

While a trial runs, its process writes a heartbeat. A process that was killed writes none, so the
next process that begins a trial finds it: its trial counts as failed, and another process tries the
same parameters again.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback

from partition.errors import PartitionError

WAIT_S = 60.0
"""Seconds that a process waits for another one that is writing the same SQLite file."""

HEARTBEAT_S = 30
"""Seconds between two signs of life of a running trial."""

GRACE_S = 180
"""Seconds without a sign of life after which a trial counts as lost: several heartbeats, of which
one may have waited for the database."""

RETRIES = 2
"""How often a lost trial is tried again; one that kills its process each time is abandoned."""

_ATTEMPTS = 5


def storage_url(text: str) -> str:
    """Return the URL of a database; text that is not a URL is the path of a SQLite file.

    Raises `PartitionError` for a path that a URL cannot have.

    >>> storage_url("sqlite:////tmp/a.db")
    'sqlite:////tmp/a.db'
    """
    if text.startswith("postgres://"):  # as hosts of databases write it
        return text.replace("postgres://", "postgresql://", 1)
    if "://" in text:
        return text
    path = str(Path(os.path.expanduser(text)).absolute())
    if (found := re.search(r"[?{}]", path)) is not None:
        raise PartitionError(f"--storage {path}: must not contain {found[0]!r}; name another file")
    return f"sqlite:///{path}"


def shown(url: str) -> str:
    """Return a URL without its password, or the path of a SQLite file; raises `PartitionError`."""
    try:
        parsed = sqlalchemy.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        raise PartitionError(
            f"--storage {url!r}: is not a database URL; write one such as "
            "postgresql://user:password@host/database, or a file's name"
        ) from None
    if parsed.drivername == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


def open_storage(url: str) -> RDBStorage:
    """Open or create a storage; raises `PartitionError` if it cannot be used.

    Several processes may open a storage that does not exist yet: one that finds incomplete tables
    tries again.
    """
    name = shown(url)
    if url.startswith("sqlite"):
        _check_file(Path(name))
    # A writing transaction takes its lock at the start, so that no two wait for each other.
    arguments = {"timeout": WAIT_S, "isolation_level": "IMMEDIATE"}
    engine: dict[str, object] = {"connect_args": arguments} if url.startswith("sqlite") else {}
    is_shared = not engine or sqlalchemy.make_url(url).database not in {None, "", ":memory:"}
    if engine and is_shared:
        engine["poolclass"] = sqlalchemy.NullPool  # closes the file, even after an error
    heartbeat_s = HEARTBEAT_S if is_shared else None  # one connection, which one thread may use
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(PartitionError):
            return _opened(url, name, engine, heartbeat_s)
    return _opened(url, name, engine, heartbeat_s)


class _Storage(RDBStorage):
    """A storage that ignores one missed heartbeat, since the next may succeed."""

    def record_heartbeat(self, trial_id: int) -> None:
        with contextlib.suppress(StorageInternalError, sqlalchemy.exc.SQLAlchemyError):
            super().record_heartbeat(trial_id)


def _opened(
    url: str, name: str, engine: Mapping[str, object], heartbeat_s: int | None
) -> RDBStorage:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # heartbeats, since 2021
            return _Storage(
                url,
                engine_kwargs=dict(engine),
                heartbeat_interval=heartbeat_s,
                grace_period=GRACE_S,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(RETRIES),
            )
    except ImportError as error:
        raise PartitionError(
            f"storage {name}: its driver is not installed ({_cause(error)}); pip install it"
        ) from None
    except sqlalchemy.exc.OperationalError as error:
        raise PartitionError(f"storage {name}: cannot be opened: {_cause(error)}") from None
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        raise PartitionError(
            f"storage {name}: is not a database that Optuna can use: {_cause(error)}"
        ) from None


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise PartitionError(f"storage {path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise PartitionError(f"storage {path}: there is no folder {path.parent}; make it first")


def _cause(error: BaseException) -> str:
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig else error
    cause = cause.__cause__ or cause
    return " ".join(str(cause).split())
