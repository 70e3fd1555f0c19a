"""Makes the keys of all machines of a cluster, in a folder for each (`launch CLUSTER --make-keys`).

Existing key pairs are kept, missing ones are made, and the public keys that each machine admits are
updated to the nodes in `cluster.yaml`. So the same command makes the first keys, the keys of an
added node, and new ones for a machine whose secret key was deleted. A node that is not in the file
keeps its keys, which may be in another file, until its own folder of keys was deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from launcher.config.access import LAUNCHER
from launcher.errors import BadInputError
from launcher.files import cannot_write, write_whole
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

    `others` are nodes that are not in this file and keep their keys. `hosts` has the host of each
    node that needs its folder, by the node's name, and `without` are nodes that use no keys.
    """

    folder: Path
    made: tuple[str, ...]
    kept: tuple[str, ...]
    withdrawn: tuple[str, ...]
    others: tuple[str, ...]
    hosts: Mapping[str, str]
    without: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Return JSON-like data."""
        return {
            "folder": str(self.folder),
            "made": list(self.made),
            "kept": list(self.kept),
            "withdrawn": list(self.withdrawn),
            "others": list(self.others),
            "without": list(self.without),
        }

    def text(self) -> str:
        """Return what was done, and what to do next, for people."""
        done = (("made", self.made), ("kept", self.kept), ("removed", self.withdrawn))
        lines = [
            f"{self.folder}: "
            + "; ".join(f"{verb} the keys of {', '.join(names)}" for verb, names in done if names)
        ]
        if self.others:
            lines.append(
                f"{', '.join(self.others)}: not in this file, and admitted as before; to keep one "
                "out, delete its folder of keys and make keys again"
            )
        if self.without:
            lines.append(
                f"{', '.join(self.without)}: on this machine, where agents use keys only if "
                f"cluster.yaml names the folder; add `keys: {self.folder.name}` to it"
            )
        if self.hosts:
            lines.append("Now copy its folder to each device; ssh encrypts the secret key:")
            for name, host in self.hosts.items():
                lines.append(f"  rsync -a --delete {self.folder / name}/ {host}:csdf-keys/")
            lines.append("Then start each device's agent with --keys csdf-keys.")
        return "\n".join(lines) + "\n"


def make_keys(
    folder: Path, nodes: Mapping[str, str | None], without: Collection[str] = ()
) -> MadeKeys:
    """Make the missing keys of these nodes (name → address, None if `launch` starts its agent).

    Those in `without` use none as long as `cluster.yaml` does not name the folder. Raises
    `BadInputError` for a folder that cannot be used.
    """
    try:
        return _make(folder, nodes, tuple(without))
    except KeysError as error:
        raise BadInputError(str(error)) from error
    except OSError as error:
        raise BadInputError(f"{error.filename}: {cannot_write(error)}") from error


def _make(folder: Path, nodes: Mapping[str, str | None], without: tuple[str, ...]) -> MadeKeys:
    names = (LAUNCHER, *nodes)
    made = tuple(name for name in names if not (folder / name / SECRET).exists())
    public = {}
    for name in names:
        if name in made:
            key, secret = new_pair()
            write_secret(folder / name, name, secret, key)
        public[name] = public_of(read_secret(folder / name))
    present = {path.parent.name for path in folder.glob(f"*/{SECRET}")}
    withdrawn: set[str] = set()
    for name in names:
        others = {other: public[other] for other in nodes if other != name}
        withdrawn |= _admit(folder / name / NODES, others, kept=present)
        if name != LAUNCHER:
            _admit(folder / name / LAUNCHERS, {"launcher": public[LAUNCHER]})
    folder.chmod(0o700)
    write_whole(folder / ".gitignore", "*\n")  # keeps the secret keys out of repositories
    hosts = {name: host_of(address) for name, address in nodes.items() if address is not None}
    return MadeKeys(
        folder,
        made,
        tuple(name for name in names if name not in made),
        tuple(sorted(withdrawn)),
        tuple(sorted(present - {*names})),
        {name: host for name, host in hosts.items() if host is not None and name not in without},
        without,
    )


def _admit(
    folder: Path, keys: dict[str, bytes], *, kept: Collection[str] | None = None
) -> set[str]:
    """Write these public keys, remove others but those in `kept`, and return their names.

    Without `kept`, all others stay.
    """
    folder.mkdir(mode=0o755, exist_ok=True)
    for name, key in keys.items():
        write_public(folder / (name + SUFFIX), name, key)
    if kept is None:
        return set()
    surplus = {path.stem for path in folder.glob(f"*{SUFFIX}")} - keys.keys() - {*kept}
    for name in surplus:
        (folder / (name + SUFFIX)).unlink()
    return surplus
