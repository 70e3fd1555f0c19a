"""Keys as files: a machine's own secret, and the public keys of those that it deals with.

    FOLDER/secret.key        its own (mode 0600), 64 hexadecimal digits
    FOLDER/public.key        what the others need of it; a copy for them, never read here
    FOLDER/launchers/*.pub   who may give an agent commands
    FOLDER/nodes/NAME.pub    the other nodes; in the launcher's folder all of them

Keys are those of CURVE (X25519), 32 bytes each. Lines that begin with `#` are for people. What
is in the folder counts as it stands there now: it is looked at again for everybody who knocks.
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
"""Of a longer file only the beginning is read."""

_is_key = re.compile(r"[0-9a-f]{64}").fullmatch

CONTROL, DATA = "control", "data"
"""The two ports of an agent, and what each is called where it asks who may come in."""


class KeysError(NodeError):
    """A key cannot be read, written or trusted: which file, why, and what to do."""


class Keyring:
    """A machine's secret key, and the public keys of those that it deals with, by name.

    `problems` are sentences about what could not be read when this was last refreshed.
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
        """Look whether anything has changed; whether it had."""
        return False

    def admits(self, port: str, key: bytes) -> bool:
        """Whether the owner of this public key may connect to that port (`CONTROL` or `DATA`)."""
        if key in self.launchers.values():
            return port in (CONTROL, DATA)
        return port == DATA and key in self.nodes.values()

    def is_key_of(self, key: bytes, node: str) -> bool:
        """Whether this is the key of a node of this name (`HOST`: of a launcher)."""
        if node == HOST:
            return key in self.launchers.values()
        return self.nodes.get(node) == key

    def key_of(self, node: str) -> bytes:
        """The public key of a node that is dialled; raises `KeysError` if it is not here."""
        try:
            return self.nodes[node]
        except KeyError:
            raise KeysError(f"there is no key of node {node!r}{self._where(node)}") from None

    def _where(self, _: str) -> str:
        return ""


class KeyFolder(Keyring):
    """A keyring in a folder. Raises `KeysError` if it cannot be used.

    A file that has become unreadable later is left out: it lets nobody in, and keeps nobody else
    out. Of a secret that cannot be read any more, the former one stays in use; a folder that is
    gone as a whole leaves everything as it was.
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
            raise KeysError(f"{self.folder} is gone; who was admitted still is")
        problems: list[str] = []
        with _noting(problems):  # whoever was withdrawn must be out all the same
            self.secret = read_secret(self.folder)
        self.launchers = _read_folder(self.folder / LAUNCHERS, problems)
        self.nodes = _read_folder(self.folder / NODES, problems)
        self.problems = tuple(problems)

    def refresh(self) -> bool:
        """Read the folder again if it has changed; whether it had."""
        if _stamp(self.folder) == self._stamp:
            return False
        try:
            self._read()
        except KeysError as error:
            self.problems = (str(error),)
        return True

    def _where(self, node: str) -> str:
        return f": put its {PUBLIC} there as {self.folder / NODES / (node + SUFFIX)}"


def read_secret(folder: Path) -> bytes:
    """A folder's secret key; refuses one that others have or can read (`KeysError`)."""
    path = folder / SECRET
    for place in (folder, path):
        _refuse_others(place)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except OSError as error:
        raise KeysError(
            f"{path} cannot be read ({error.strerror}): `node-agent keygen` makes a key, "
            "`launch CLUSTER.yaml --make-keys` those of a whole cluster"
        ) from error
    if status.st_mode & _OTHERS:
        raise KeysError(
            f"{path} can be read by other users (mode {status.st_mode & 0o777:04o}), so it is no "
            f"secret: make new keys, or `chmod 600 {path}` if nobody has seen it"
        )
    return _read_key(path)


def write_secret(folder: Path, name: str, secret: bytes, public: bytes) -> None:
    """Write a machine's own pair into a folder, which is made if need be.

    Raises `KeysError` if there is a secret already, or it cannot be written.
    """
    path = folder / SECRET
    text = f"# Secret key of {name}. It never leaves that machine.\n{secret.hex()}\n"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(text)
    except FileExistsError:
        raise KeysError(f"{path} is there already; delete it to get another") from None
    except OSError as error:
        raise KeysError(f"{path} cannot be written: {error.strerror}") from error
    write_public(folder / PUBLIC, name, public)


def write_public(path: Path, name: str, public: bytes) -> None:
    """Write a public key into a file of its own, whole or not at all; `KeysError` if impossible."""
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
    """The keys of a folder by name; it may be missing."""
    found: dict[str, bytes] = {}
    try:
        for place in (folder.parent, folder):
            _refuse_others(place)
            _refuse_written_by_all(place)
        for path in sorted(folder.iterdir()):
            if path.name.endswith(SUFFIX):
                with _noting(problems):
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
    """Whoever has a file or folder, or a link to it, decides what is in it."""
    ours = os.geteuid()
    with contextlib.suppress(OSError, RuntimeError):  # told where it is read
        for place in (path, path.resolve()):
            owner = place.lstat().st_uid
            if owner not in (ours, _ROOT):
                raise KeysError(
                    f"{place} belongs to {_user(owner)}, and only keys of {_user(ours)} or "
                    f"{_user(_ROOT)} are trusted: `chown -h {_user(ours)} {place}` if nobody has "
                    "changed it"
                )


def _user(number: int) -> str:
    """A user's name; the number where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _refuse_written_by_all(path: Path) -> None:
    """Whoever can write there decides who is admitted."""
    with contextlib.suppress(OSError):  # told where it is read
        if path.stat().st_mode & _WORLD_WRITES:
            raise KeysError(f"{path} can be written by everybody: `chmod go-w {path}`")


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Leave out a file that cannot be used, and note why."""
    try:
        yield
    except KeysError as error:
        problems.append(str(error))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _read_key(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            content = file.read(LONGEST_FILE_BYTES) or b""  # a pipe has nothing, and does not wait
        lines = content.decode("ascii").splitlines()
    except OSError as error:
        raise KeysError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        lines = []
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if len(keys) != 1 or not _is_key(keys[0]):
        raise KeysError(f"{path} does not hold one key of 64 hexadecimal digits, small letters")
    return bytes.fromhex(keys[0])


def _stamp(folder: Path) -> tuple[object, ...]:
    """Differs whenever a file of the folder has been changed, added or removed."""
    paths = [folder, folder / SECRET]
    for part in (LAUNCHERS, NODES):
        paths += [folder / part, *sorted((folder / part).glob(f"*{SUFFIX}"))]
    return tuple((str(path), _looks(path)) for path in paths)


def _looks(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
