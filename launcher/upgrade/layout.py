"""The folders of a board's installation, and the commands that change them.

    PREFIX/current -> versions/0.2.0-1f0c…     what the service starts: current/bin/node-agent
    PREFIX/versions/0.1.0-93ab…/               an environment of Python for each version
    PREFIX/versions/0.2.0-1f0c…/               with the wheel that was installed into it

A version's folder is named by the wheel's version and digest, so two builds of one version have
different folders. `current` changes by one rename, so it always names a whole version.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from launcher.errors import BadInputError

DIGEST_DIGITS = 12
"""Digits of the wheel's SHA-256 in the name of a version's folder."""

_WHEEL = re.compile(r"csdf_edge-([A-Za-z0-9.!+_]+)(?:-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl")
_VERSION = re.compile(rf"[A-Za-z0-9.!+_]+-[0-9a-f]{{{DIGEST_DIGITS}}}")
_EXTRAS = re.compile(r"[a-z0-9][a-z0-9-]*(,[a-z0-9][a-z0-9-]*)*")

Command = tuple[str, ...]
"""A program and its arguments, which no shell interprets."""


@dataclass(frozen=True)
class Wheel:
    """A wheel of this project on the launching machine."""

    path: Path
    version: str
    digest: str

    @property
    def folder(self) -> str:
        """The name of its version's folder."""
        return f"{self.version}-{self.digest[:DIGEST_DIGITS]}"


def read_wheel(path: Path) -> Wheel:
    """Return the facts of a wheel's name and content; raises `BadInputError` if it is not ours."""
    match = _WHEEL.fullmatch(path.name)
    if match is None:
        raise BadInputError(
            f"--wheel {path}: is not a wheel of csdf-edge; `python -m build` makes one, "
            "dist/csdf_edge-VERSION-py3-none-any.whl"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"--wheel {path}: {error.strerror}") from error
    return Wheel(path, match[1], hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class InstallLayout:
    """Where a wheel is installed on boards, and with what.

    `prefix` is absolute, or relative to the home of the user who logs in.
    """

    prefix: PurePosixPath
    wheel: Wheel
    extras: str = "cpu"
    system_packages: bool = False

    def __post_init__(self) -> None:
        if self.extras and not _EXTRAS.fullmatch(self.extras):
            raise BadInputError(
                f"--extras {self.extras!r}: write names of extras with commas, such as cpu,lossless"
            )
        if str(self.prefix) in (".", "/") or ".." in self.prefix.parts:
            raise BadInputError(f"--prefix {self.prefix}: name a folder such as /opt/csdf-edge")

    @property
    def current(self) -> str:
        """The link that names the present version."""
        return str(self.prefix / "current")

    @property
    def target(self) -> str:
        """The link's target when the new version is the present one."""
        return f"versions/{self.wheel.folder}"

    @property
    def folder(self) -> str:
        """The folder of the new version."""
        return str(self.prefix / self.target)

    @property
    def copied(self) -> str:
        """The wheel on the board."""
        return f"{self.folder}/{self.wheel.path.name}"

    def look(self) -> Command:
        """Print what `current` names."""
        return ("readlink", self.current)

    def make_folder(self) -> tuple[Command, ...]:
        """Make the new version's folder, without anything that an earlier attempt has left."""
        return (self.discard(), ("mkdir", "-p", self.folder))

    def receive(self) -> Command:
        """Write standard input as the wheel."""
        return ("dd", f"of={self.copied}", "status=none")

    def digest(self) -> Command:
        """Print the digest of the wheel on the board."""
        return ("sha256sum", self.copied)

    def build(self) -> tuple[Command, ...]:
        """Make the environment, and install the wheel into it."""
        venv = ["python3", "-m", "venv", *(["--system-site-packages"] * self.system_packages)]
        wanted = self.copied + (f"[{self.extras}]" if self.extras else "")
        pip = (f"{self.folder}/bin/python", "-m", "pip", "--disable-pip-version-check")
        return (
            (*venv, self.folder),
            (*pip, "install", "--quiet", wanted),
            ("chmod", "-R", "a+rX", self.folder),
        )

    def describe(self) -> Command:
        """Have the new agent print what engines it finds."""
        return (f"{self.folder}/bin/node-agent", "--describe")

    def compute(self) -> Command:
        """Have the new agent's engine compute a tiny network, and compare the result."""
        return (f"{self.folder}/bin/node-agent", "--trial")

    def say_version(self) -> Command:
        """Have the new agent print its version."""
        return (f"{self.folder}/bin/node-agent", "--version")

    def switch(self, target: str) -> tuple[Command, ...]:
        """Let `current` name `target`, by one rename."""
        new = f"{self.current}.new"
        return (("ln", "-sfn", target, new), ("mv", "-T", new, self.current))

    def find_process(self) -> Command:
        """Find a process of the new version; the brackets keep the search from finding itself."""
        return ("pgrep", "--full", f"versions/{re.escape(self.wheel.folder)}/[b]in/")

    def discard(self) -> Command:
        """Remove the new version's folder."""
        return ("rm", "-rf", self.folder)

    def list_versions(self) -> Command:
        """Print the names of all versions' folders."""
        return ("ls", "-1", str(self.prefix / "versions"))

    def prune(self, listed: str, former: str) -> Command | None:
        """Return how to remove the versions among `listed` that are neither new nor `former`."""
        kept = {self.target, former}
        names = [name for name in listed.split() if _VERSION.fullmatch(name)]
        old = [name for name in names if f"versions/{name}" not in kept]
        if not old:
            return None
        return ("rm", "-rf", *(str(self.prefix / "versions" / name) for name in old))


def is_version(target: str) -> bool:
    """Return whether `current` names a version's folder as it should."""
    head, _, name = target.partition("/")
    return head == "versions" and _VERSION.fullmatch(name) is not None
