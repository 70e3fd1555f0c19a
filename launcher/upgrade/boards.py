"""Finds the boards of a cluster, and where ssh reaches each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from launcher.config.load import Cluster
from launcher.config.node import SSH, NodeConfig
from launcher.errors import BadInputError
from nodes.protocol.addresses import host_of


@dataclass(frozen=True)
class SshTarget:
    """Where ssh reaches a board; what is None comes from ~/.ssh/config."""

    host: str
    user: str | None = None
    port: int | None = None

    def command(self, *words: str) -> str:
        """Return what to type in a shell to run a command there."""
        there = self.host if self.user is None else f"{self.user}@{self.host}"
        port = () if self.port is None else ("-p", str(self.port))
        return shlex.join(("ssh", *port, there, *words))


@dataclass(frozen=True)
class SshBoard:
    """A machine with the agents of one or more nodes; `nodes` has their names and addresses."""

    name: str
    ssh: SshTarget
    nodes: tuple[tuple[str, str], ...]


def boards_of(cluster: Cluster, wanted: Sequence[str] = ()) -> list[SshBoard]:
    """Return the boards of these nodes (all, if none is named), in the order of `cluster.yaml`.

    Nodes that ssh reaches at the same place are one board. Raises `BadInputError` if a node does
    not exist or has no address.
    """
    nodes = {node.name: node for node in cluster.config.nodes}
    for name in wanted:
        if name not in nodes:
            raise BadInputError(f"--node {name}: the nodes are {', '.join(nodes)}")
        if nodes[name].address is None:
            raise BadInputError(
                f"--node {name}: launch starts its agent on this machine, with the version that "
                "is installed here"
            )
    found: dict[SshTarget, list[tuple[str, str]]] = {}
    for node in nodes.values():
        if node.address is not None and (not wanted or node.name in wanted):
            found.setdefault(ssh_target(node), []).append((node.name, node.address))
    if not found:
        raise BadInputError(
            f"{cluster.source.name}: no node has an address, so there is no board to upgrade"
        )
    return [
        SshBoard(", ".join(name for name, _ in nodes), target, tuple(nodes))
        for target, nodes in found.items()
    ]


def ssh_target(node: NodeConfig) -> SshTarget:
    """Return where ssh reaches the board of a node that has an address."""
    return _target(node.ssh or bracketed(host_of(node.address or "") or ""))


def bracketed(host: str) -> str:
    """Return a host as ssh, scp and rsync take it before a colon."""
    return f"[{host}]" if ":" in host else host


def _target(text: str) -> SshTarget:
    match = SSH.fullmatch(text)
    if match is None:  # the configuration has been checked
        raise BadInputError(f"{text!r} is not USER@HOST:PORT")
    port = match["port"]
    return SshTarget(match["ipv6"] or match["host"], match["user"], int(port) if port else None)
