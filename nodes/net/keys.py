"""Read and write a folder of keys: a machine's own secret, and the public keys that it trusts.

    FOLDER/secret.key        the machine's secret key (mode 0600), 64 hexadecimal digits
    FOLDER/public.key        its public key, to be copied to other machines; never read here
    FOLDER/launchers/*.pub   the launchers that may command the agent
    FOLDER/nodes/NAME.pub    the other nodes; in the launcher's folder, all nodes

Keys are CURVE keys (X25519) of 32 bytes. Lines that begin with `#` are comments. Agents read a
changed folder again for every new connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nodes.protocol.errors import NodeError
from nodes.protocol.messages import HOST

SECRET, PUBLIC = "secret.key", "public.key"
LAUNCHERS, NODES = "launchers", "nodes"
SUFFIX = ".pub"

_OTHERS = 0o077
_WORLD_WRITES = 0o002
_ROOT = 0
LONGEST_FILE_BYTES = 1 << 16
"""Only this much of a longer file is read."""

_is_key = re.compile(r"[0-9a-f]{64}").fullmatch

CONTROL, DATA = "control", "data"
"""The names of an agent's two ports, for which different keys are admitted."""


class KeysError(NodeError):
    """A key cannot be read, written or trusted: which file, why, and what to do."""


class Keyring:
    """A machine's secret key, and the public keys of launchers and nodes by name.

    `problems` has a sentence about each file that could not be read at the last refresh.
    """

    def __init__(
        self,
        secret: bytes,
        launchers: Mapping[str, bytes] | None = None,
        nodes: Mapping[str, bytes] | None = None,
    ) -> None:
        self.secret = secret
        self.launchers = launchers or {}
        self.nodes = nodes or {}
        self.problems: tuple[str, ...] = ()

    def refresh(self) -> bool:
        """Read changed keys again; return whether anything had changed."""
        return False

    def admits(self, port: str, key: bytes) -> bool:
        """Return whether a public key may connect to the port (`CONTROL` or `DATA`)."""
        if key in self.launchers.values():
            return port in (CONTROL, DATA)
        return port == DATA and key in self.nodes.values()

    def is_key_of(self, key: bytes, node: str) -> bool:
        """Return whether this is the key of the node of this name; for `HOST`, of a launcher."""
        if node == HOST:
            return key in self.launchers.values()
        return self.nodes.get(node) == key

    def key_of(self, node: str) -> bytes:
        """Return a node's public key; raises `KeysError` if it is missing."""
        try:
            return self.nodes[node]
        except KeyError:
            raise KeysError(f"the key of node {node!r} is missing{self._hint(node)}") from None

    def _hint(self, _: str) -> str:
        return ""


class KeyFolder(Keyring):
    """A keyring that is read from a folder; raises `KeysError` if it cannot be used.

    Later problems are less severe, so that they stop no agent. A public key that has become
    unreadable is left out. If the secret has become unreadable, the former one stays in use. If the
    whole folder is gone, nothing changes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(read_secret(folder))
        self._read()
        if self.problems:
            raise KeysError(self.problems[0])

    def _read(self) -> None:
        self._stamp = _stamp(self.folder)
        if not self.folder.is_dir():
            raise KeysError(f"{self.folder} is gone; the keys read before remain admitted")
        problems: list[str] = []
        with _collecting(problems):  # keys that were withdrawn must be refused all the same
            self.secret = read_secret(self.folder)
        self.launchers = _read_folder(self.folder / LAUNCHERS, problems)
        self.nodes = _read_folder(self.folder / NODES, problems)
        self.problems = tuple(problems)

    def refresh(self) -> bool:
        """Read the folder again if it has changed; return whether it had."""
        if _stamp(self.folder) == self._stamp:
            return False
        try:
            self._read()
        except KeysError as error:
            self.problems = (str(error),)
        return True

    def _hint(self, node: str) -> str:
        return f": copy its {PUBLIC} to {self.folder / NODES / (node + SUFFIX)}"


def read_secret(folder: Path) -> bytes:
    """Return a folder's secret key.

    Raises `KeysError` if it cannot be read, belongs to another user, or others can read it.
    """
    path = folder / SECRET
    for place in (folder, path):
        _refuse_others(place)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise KeysError(
            f"{path} cannot be read ({error.strerror}): make a key with `node-agent keygen`, or "
            "those of a whole cluster with `launch CLUSTER.yaml --make-keys`"
        ) from error
    if status.st_mode & _OTHERS:
        raise KeysError(
            f"{path} can be read by other users (mode {status.st_mode & 0o777:04o}): make new "
            f"keys, or run `chmod 600 {path}` if nobody has read it"
        )
    return _read_key(path)


def read_public(path: Path) -> bytes:
    """Return the key of a file with a public key; raises `KeysError` if it has none."""
    return _read_key(path)


def write_secret(folder: Path, name: str, secret: bytes, public: bytes) -> None:
    """Write a machine's own key pair into a folder, which is created if it is missing.

    Raises `KeysError` if the folder already has a secret, or a file cannot be written.
    """
    path = folder / SECRET
    text = f"# Secret key of {name}. It never leaves that machine.\n{secret.hex()}\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise KeysError(f"{path} already exists; delete it to make a new key") from None
    except OSError as error:
        raise KeysError(f"{path} cannot be written: {error.strerror}") from error
    write_public(folder / PUBLIC, name, public)


def write_public(path: Path, name: str, public: bytes) -> None:
    """Write a public key into a file, atomically; raises `KeysError` if that fails."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    text = f"# Public key of {name}\n{public.hex()}\n"
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        with open(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(text)
        draft.rename(path)
    except OSError as error:
        raise KeysError(f"{path} cannot be written: {error.strerror}") from error


def _read_folder(folder: Path, problems: list[str]) -> Mapping[str, bytes]:
    """Return the keys of a folder by name; none if the folder is missing."""
    found: dict[str, bytes] = {}
    try:
        for place in (folder.parent, folder):
            _refuse_others(place)
            _refuse_written_by_all(place)
        for path in sorted(folder.iterdir()):
            if path.name.endswith(SUFFIX):
                with _collecting(problems):
                    _refuse_others(path)
                    _refuse_written_by_all(path)
                    found[path.name.removesuffix(SUFFIX)] = _read_key(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        problems.append(f"{folder} cannot be read: {error.strerror}")
    except KeysError as error:
        problems.append(str(error))
    return found


def _refuse_others(path: Path) -> None:
    """Raise `KeysError` if a file, folder or link belongs to a user who could replace the keys."""
    ours = os.geteuid()
    with contextlib.suppress(OSError, RuntimeError):  # reading it reports the error
        for place in (path, path.resolve()):
            owner = place.lstat().st_uid
            if owner not in (ours, _ROOT):
                raise KeysError(
                    f"{place} belongs to {_user(owner)}, and only keys of {_user(ours)} or "
                    f"{_user(_ROOT)} are trusted: run `chown -h {_user(ours)} {place}` if nobody "
                    "has changed it"
                )


def _user(number: int) -> str:
    """Return a user's name; the number if the user has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _refuse_written_by_all(path: Path) -> None:
    """Raise `KeysError` if everybody can write there, and so decide which keys are admitted."""
    with contextlib.suppress(OSError):  # reading it reports the error
        if path.stat().st_mode & _WORLD_WRITES:
            raise KeysError(f"{path} can be written by everybody: run `chmod go-w {path}`")


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    """Collect a `KeysError` of the block as a sentence."""
    try:
        yield
    except KeysError as error:
        problems.append(str(error))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _read_key(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            content = file.read(LONGEST_FILE_BYTES) or b""  # an empty pipe does not block
        lines = content.decode("ascii").splitlines()
    except OSError as error:
        raise KeysError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        lines = []
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if len(keys) != 1 or not _is_key(keys[0]):
        raise KeysError(f"{path} does not contain one key of 64 lower-case hexadecimal digits")
    return bytes.fromhex(keys[0])


def _stamp(folder: Path) -> tuple[object, ...]:
    """Return a value that differs whenever a file of the folder is changed, added or removed."""
    paths = [folder, folder / SECRET]
    for part in (LAUNCHERS, NODES):
        paths += [folder / part, *sorted((folder / part).glob(f"*{SUFFIX}"))]
    return tuple((str(path), _version(path)) for path in paths)


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
