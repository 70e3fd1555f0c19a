"""The storage of a sweep: a SQLite file, or any database that SQLAlchemy can reach."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy
from optuna.storages import RDBStorage

from partition.errors import PartitionError

WAIT_S = 60.0
"""How long a process waits for another one that is writing the same SQLite file."""

_ATTEMPTS = 5


def storage_url(text: str) -> str:
    """Return the URL of a database; text that is no URL is the path of a SQLite file.

    >>> storage_url("sqlite:////tmp/a.db")
    'sqlite:////tmp/a.db'
    """
    return text if "://" in text else f"sqlite:///{Path(text).expanduser().absolute()}"


def shown(url: str) -> str:
    """A URL without its password, or the path of a SQLite file; raises `PartitionError`."""
    try:
        parsed = sqlalchemy.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        raise PartitionError(
            f"--storage {url!r}: is no database URL; write one such as "
            "postgresql://user:password@host/database, or a file's name"
        ) from None
    if parsed.drivername == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


def open_storage(url: str) -> RDBStorage:
    """Open or begin a storage; raises `PartitionError` if it cannot be used.

    Several processes may open one that is not there yet: whoever finds tables half made tries
    again.
    """
    name = shown(url)
    if url.startswith("sqlite"):
        _check_file(Path(name))
    # A transaction that writes waits from its start, so that two can never wait for each other.
    arguments = {"timeout": WAIT_S, "isolation_level": "IMMEDIATE"}
    engine: dict[str, object] = {"connect_args": arguments} if url.startswith("sqlite") else {}
    if engine and sqlalchemy.make_url(url).database not in {None, ":memory:"}:
        engine["poolclass"] = sqlalchemy.NullPool  # closes the file, also where this fails
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(PartitionError):
            return _opened(url, name, engine)
    return _opened(url, name, engine)


def _opened(url: str, name: str, engine: Mapping[str, object]) -> RDBStorage:
    try:
        return RDBStorage(url, engine_kwargs=dict(engine))
    except ImportError as error:
        raise PartitionError(
            f"storage {name}: its driver is not installed ({_cause(error)}); pip install it"
        ) from None
    except sqlalchemy.exc.OperationalError as error:
        raise PartitionError(f"storage {name}: cannot be opened: {_cause(error)}") from None
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        raise PartitionError(
            f"storage {name}: is no database that Optuna can use: {_cause(error)}"
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
