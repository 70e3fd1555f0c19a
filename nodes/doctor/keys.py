"""Checks a folder of keys: is everything there, readable by its owner only, and of one cluster?

Keys do not expire; a key is withdrawn by deleting it. Whether the other end has the matching key
shows only when both meet (`launch doctor`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.net.curve import public_of
from nodes.net.keys import (
    LAUNCHERS,
    NODES,
    PUBLIC,
    SECRET,
    SUFFIX,
    KeysError,
    read_public,
    read_secret,
)

_ROOT = 0


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file of keys, or a folder of them: who may do what with it, and the public key in it.

    `is_there` says whether it exists. `problem` is why the key could not be read, else empty; of
    the secret file, `key` is the public key that belongs to it.
    """

    path: Path
    is_there: bool
    mode: int = 0
    owner: int = _ROOT
    problem: str = ""
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class KeysReading:
    """A machine's folder of keys, as user number `user` sees it."""

    folder: KeyFile
    secret: KeyFile
    public: KeyFile
    user: int
    launchers: Mapping[str, KeyFile] = field(default_factory=dict)
    nodes: Mapping[str, KeyFile] = field(default_factory=dict)

    @property
    def everything(self) -> Iterator[KeyFile]:
        """Yield the folder and all files, those whose owner matters most first."""
        yield from (self.folder, self.secret, self.public)
        yield from (*self.launchers.values(), *self.nodes.values())


def read_keys(folder: Path) -> KeysReading:
    """Read a folder of keys; nothing that is wrong with it raises."""
    return KeysReading(
        _look_at(folder),
        _secret(folder),
        _public(folder / PUBLIC),
        os.geteuid(),
        _public_keys(folder / LAUNCHERS),
        _public_keys(folder / NODES),
    )


def _look_at(path: Path, problem: str = "", key: bytes = b"") -> KeyFile:
    try:
        status = path.stat()
    except OSError as error:
        return KeyFile(path, os.path.lexists(path), problem=problem or str(error.strerror))
    return KeyFile(path, True, status.st_mode & 0o7777, status.st_uid, problem, key)


def _secret(folder: Path) -> KeyFile:
    try:
        return _look_at(folder / SECRET, key=public_of(read_secret(folder)))
    except KeysError as error:
        return _look_at(folder / SECRET, str(error))


def _public(path: Path) -> KeyFile:
    try:
        return _look_at(path, key=read_public(path))
    except KeysError as error:
        return _look_at(path, str(error))


def _public_keys(folder: Path) -> dict[str, KeyFile]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))
    except OSError:
        return {}
    return {path.name.removesuffix(SUFFIX): _public(path) for path in paths}


def judge_keys(reading: KeysReading, name: str, make: str = "") -> list[Finding]:
    """Return what is wrong with the keys of the machine that calls itself `name`.

    For a launcher, `make` is the command that makes the keys of its cluster. A launcher admits
    nobody, so its folder needs no keys of launchers. For an agent, `make` is empty.
    """
    if not reading.secret.is_there:
        return [_no_secret(reading, make)]
    found = [finding for file in reading.everything for finding in _judge_access(file, reading)]
    if reading.secret.problem and not found:
        found.append(_unreadable(reading.secret, reading, make))
    found += [
        _unreadable(file, reading, make)
        for file in (*reading.launchers.values(), *reading.nodes.values())
        if file.problem and not any(str(file.path) == finding.where for finding in found)
    ]
    if reading.secret.key:
        found += _judge_fit(reading, name)
    if not make and not any(file.key for file in reading.launchers.values()):
        target = reading.folder.path / LAUNCHERS / ("launcher" + SUFFIX)
        found.append(
            Finding(
                Severity.ERROR,
                str(reading.folder.path / LAUNCHERS),
                "It has no launcher's key, so no launcher can use this agent. The command copies "
                "one; replace LAUNCHER by the launching machine's name.",
                f"scp LAUNCHER:keys/@launcher/{PUBLIC} {shlex.quote(str(target))}",
            )
        )
    return found


def _no_secret(reading: KeysReading, make: str) -> Finding:
    folder = shlex.quote(str(reading.folder.path))
    what = "There is no secret key, so no connection can be encrypted."
    if make:
        return Finding(Severity.ERROR, str(reading.secret.path), what, make)
    return Finding(
        Severity.ERROR,
        str(reading.secret.path),
        f"{what} Copy the folder that `launch cluster.yaml --make-keys` made for this node, or "
        "make a pair here and copy the public keys by hand.",
        f"node-agent keygen --out {folder}",
    )


def _judge_access(file: KeyFile, reading: KeysReading) -> Iterator[Finding]:
    if not file.is_there:
        return
    place = shlex.quote(str(file.path))
    if file.owner not in (reading.user, _ROOT):
        yield Finding(
            Severity.ERROR,
            str(file.path),
            f"It belongs to user {file.owner}, who could replace it; this is user {reading.user}.",
            f"sudo chown -hR {reading.user} {place}",
        )
    if file.path == reading.secret.path and file.mode & 0o077:
        yield Finding(
            Severity.ERROR,
            str(file.path),
            f"Other users can read it (mode {file.mode:04o}). If somebody may have read it, make "
            "new keys.",
            f"chmod 600 {place}",
        )
    elif file.mode & 0o002:
        yield Finding(
            Severity.ERROR,
            str(file.path),
            f"Everybody can write it (mode {file.mode:04o}), and so decide who is admitted.",
            f"chmod go-w {place}",
        )


def _unreadable(file: KeyFile, reading: KeysReading, make: str) -> Finding:
    remedy = f"rm {shlex.quote(str(file.path))}"
    if file.path == reading.secret.path:
        folder = shlex.quote(str(reading.folder.path))
        remedy += f" && {make or f'node-agent keygen --out {folder}'}"
    return Finding(Severity.ERROR, str(file.path), f"It cannot be used: {file.problem}.", remedy)


def _judge_fit(reading: KeysReading, name: str) -> Iterator[Finding]:
    """Find keys that do not belong together."""
    own = reading.secret.key
    listed = reading.nodes.get(name)
    if listed is not None and listed.key and listed.key != own:
        yield Finding(
            Severity.ERROR,
            str(listed.path),
            f"Its key for {name!r} does not match this folder's secret key: the folder belongs to "
            f"another machine. Copy the folder {name} from the launcher's keys; replace LAUNCHER "
            "by the launching machine's name.",
            f"rsync -a --delete LAUNCHER:keys/{shlex.quote(name)}/ "
            f"{shlex.quote(str(reading.folder.path))}/",
        )
    if reading.public.key and reading.public.key != own:
        yield Finding(
            Severity.WARNING,
            str(reading.public.path),
            "It is not the public key of secret.key: a machine that copies it admits another key. "
            "The command writes the right one.",
            f"echo {own.hex()} > {shlex.quote(str(reading.public.path))}",
        )
