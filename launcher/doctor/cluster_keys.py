"""Checks the keys of a whole cluster: the launcher's own folder, and those of its nodes next to it.

The folder of keys that `launch cluster.yaml --make-keys` makes has a folder for each machine. The
nodes' folders need not be here; where one is, it must belong to the cluster.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.config.access import LAUNCHER, Access
from nodes.doctor.findings import Finding, Severity
from nodes.doctor.keys import KeysReading, judge_keys, read_keys


@dataclass(frozen=True, slots=True)
class ClusterKeysReading:
    """The launcher's folder of keys, and the folder of each node that has one here."""

    launcher: KeysReading
    nodes: dict[str, KeysReading]


def read_cluster_keys(folder: Path, nodes: Sequence[str]) -> ClusterKeysReading:
    """Read the keys in a cluster's folder."""
    here = [name for name in nodes if (folder / name).is_dir()]
    return ClusterKeysReading(
        read_keys(folder / LAUNCHER), {name: read_keys(folder / name) for name in here}
    )


def judge_cluster_keys(
    reading: ClusterKeysReading, guarded: Sequence[str], target: Path
) -> list[Finding]:
    """Return what is wrong with the keys for connections to the nodes `guarded`."""
    make = f"launch {shlex.quote(str(target))} --make-keys"
    found = judge_keys(reading.launcher, LAUNCHER, make)
    if not reading.launcher.secret.is_there:
        return found
    found += [
        Finding(
            Severity.ERROR,
            str(reading.launcher.folder.path / "nodes" / f"{name}.pub"),
            f"The key of node {name!r} is missing, so this launcher cannot know it from another "
            "machine. The command makes new keys for all nodes that have none; copy the node's "
            "folder to it afterwards.",
            make,
        )
        for name in guarded
        if name not in reading.launcher.nodes
    ]
    for name, own in reading.nodes.items():
        found += judge_keys(own, name)
        found += _judge_pair(reading.launcher, name, own, make)
    return found


def _judge_pair(launcher: KeysReading, name: str, own: KeysReading, make: str) -> Iterator[Finding]:
    """Find keys of the launcher and of one node that do not fit each other."""
    known = launcher.nodes.get(name)
    if known is not None and known.key and own.secret.key and known.key != own.secret.key:
        yield Finding(
            Severity.ERROR,
            str(known.path),
            f"It is a foreign key: it does not belong to {own.secret.path}. The command writes "
            "the right one.",
            make,
        )
    admitted = {file.key for file in own.launchers.values()}
    if admitted and launcher.secret.key and launcher.secret.key not in admitted:
        yield Finding(
            Severity.ERROR,
            str(own.folder.path / "launchers"),
            f"Node {name!r} admits other launchers, but not this one. The command adds its key; "
            "copy the node's folder to it afterwards.",
            make,
        )


def check_cluster_keys(access: Access, nodes: dict[str, str | None], target: Path) -> list[Finding]:
    """Check the keys of a cluster whose nodes have these addresses (None: started here)."""
    exposed = [name for name, at in nodes.items() if at is not None and access.guards(at)]
    reachable = [name for name, at in nodes.items() if at is not None]
    if access.insecure and reachable:
        return [
            Finding(
                Severity.WARNING,
                f"{target}, insecure",
                "There is neither encryption nor authentication: everybody who reaches a node can "
                "run networks there. Remove the line, and make keys.",
                f"launch {shlex.quote(str(target))} --make-keys",
            )
        ]
    if not exposed:
        return []
    return judge_cluster_keys(read_cluster_keys(access.keys, list(nodes)), exposed, target)
