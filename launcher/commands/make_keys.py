"""Makes the keys of all machines of a cluster, in a folder for each (`launch CLUSTER --make-keys`).

Existing key pairs are kept, missing ones are made, and the public keys that each machine admits are
updated to the nodes in `cluster.yaml`. So the same command makes the first keys, the keys of an
added node, and new ones for a machine whose secret key was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import BadInputError
from launcher.files import cannot_write, write_whole
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
    """The folder, and the names whose key pairs were made or kept, or whose keys were removed.

    `hosts` has the host of each node at another address, by the node's name.
    """

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    withdrawn: tuple[str, ...]
    hosts: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """Return JSON-like data."""
        return {
            "folder": str(self.folder),
            "made": list(self.made),
            "kept": list(self.kept),
            "withdrawn": list(self.withdrawn),
        }

    def text(self) -> str:
        """Return what was done, and what to do next, for people."""
        lines = [
            f"{self.folder}: made the keys of {_listed(self.made)}; "
            f"kept those of {_listed(self.kept)}; removed those of {_listed(self.withdrawn)}"
        ]
        if self.hosts:
            lines.append("Now copy its folder to each device; ssh encrypts the secret key:")
            for name, host in self.hosts.items():
                lines.append(f"  rsync -a --delete {self.folder / name}/ {host}:csdf-keys/")
            lines.append("Then start each device's agent with --keys csdf-keys.")
        return "\n".join(lines) + "\n"


def make_keys(folder: Path, nodes: Mapping[str, str | None]) -> MadeKeys:
    """Make the missing keys of these nodes (name → address, None if `launch` starts its agent).

    Raises `BadInputError` for a folder that cannot be used.
    """
    try:
        return _make(folder, nodes)
    except KeysError as error:
        raise BadInputError(str(error)) from error
    except OSError as error:
        raise BadInputError(f"{error.filename}: {cannot_write(error)}") from error


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
    write_whole(folder / ".gitignore", "*\n")  # keeps the secret keys out of repositories
    hosts = {name: host_of(address) for name, address in nodes.items() if address is not None}
    return MadeKeys(
        folder,
        made,
        tuple(name for name in names if name not in made),
        tuple(sorted(withdrawn)),
        {name: host for name, host in hosts.items() if host is not None},
    )


def _admit(folder: Path, keys: dict[str, bytes], *, keep_others: bool = False) -> set[str]:
    """Write these public keys, remove others unless `keep_others`, and return their names."""
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
    return ", ".join(names) if names else "no machine"
