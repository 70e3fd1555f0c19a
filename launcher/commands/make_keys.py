"""`launch CLUSTER --make-keys`: the keys of all machines of a cluster, in a folder for each.

What is there already stays: a pair is made where there is none, and whom each machine admits is
brought to what the cluster says. So the same command makes the first keys, those of a node more,
and the new ones of a machine whose secret was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import BadInputError
from launcher.files import write_whole
from launcher.run.access import LAUNCHER
from nodes.net.curve import new_pair, public_of
from nodes.net.keys import (
    LAUNCHERS,
    NODES,
    SECRET,
    SUFFIX,
    KeysError,
    read_secret,
    write_public,
    write_secret,
)
from nodes.protocol.addresses import host_of


@dataclass(frozen=True)
class MadeKeys:
    """The folder, whose pairs were made, and whose public keys were taken out of it."""

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    withdrawn: tuple[str, ...]
    hosts: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """For `--json`."""
        return {
            "folder": str(self.folder),
            "made": list(self.made),
            "kept": list(self.kept),
            "withdrawn": list(self.withdrawn),
        }

    def text(self) -> str:
        """What was done, and what to do next."""
        lines = [
            f"{self.folder}: made the keys of {_listed(self.made)}; "
            f"kept those of {_listed(self.kept)}; withdrew those of {_listed(self.withdrawn)}"
        ]
        if self.hosts:
            lines.append("Now give each device its folder (ssh keeps the secret on the way):")
            for name, host in self.hosts.items():
                lines.append(f"  rsync -a --delete {self.folder / name}/ {host}:csdf-keys/")
            lines.append("and start its agent there with --keys csdf-keys")
        return "\n".join(lines) + "\n"


def make_keys(folder: Path, nodes: Mapping[str, str | None]) -> MadeKeys:
    """Make what is missing for these nodes (name → address, if it is not started by `launch`).

    Raises `BadInputError` for a folder that cannot be used.
    """
    try:
        return _make(folder, nodes)
    except KeysError as error:
        raise BadInputError(str(error)) from error
    except OSError as error:
        raise BadInputError(f"{error.filename}: {error.strerror}") from error


def _make(folder: Path, nodes: Mapping[str, str | None]) -> MadeKeys:
    names = (LAUNCHER, *nodes)
    made = tuple(name for name in names if not (folder / name / SECRET).exists())
    public = {}
    for name in names:
        if name in made:
            key, secret = new_pair()
            write_secret(folder / name, name, secret, key)
        public[name] = public_of(read_secret(folder / name))
    withdrawn: set[str] = set()
    for name in names:
        others = {other: public[other] for other in nodes if other != name}
        withdrawn |= _admit(folder / name / NODES, others)
        if name != LAUNCHER:
            _admit(folder / name / LAUNCHERS, {"launcher": public[LAUNCHER]}, keep_others=True)
    folder.chmod(0o700)
    write_whole(folder / ".gitignore", "*\n")  # secrets are for nobody's repository
    hosts = {name: host_of(address) for name, address in nodes.items() if address is not None}
    return MadeKeys(
        folder,
        made,
        tuple(name for name in names if name not in made),
        tuple(sorted(withdrawn)),
        {name: host for name, host in hosts.items() if host is not None},
    )


def _admit(folder: Path, keys: dict[str, bytes], *, keep_others: bool = False) -> set[str]:
    """Write these keys, and remove others unless they are to be kept; returns what was removed."""
    folder.mkdir(mode=0o755, exist_ok=True)
    for name, key in keys.items():
        write_public(folder / (name + SUFFIX), name, key)
    if keep_others:
        return set()
    surplus = {path.stem for path in folder.glob(f"*{SUFFIX}")} - keys.keys()
    for name in surplus:
        (folder / (name + SUFFIX)).unlink()
    return surplus


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "nobody"
