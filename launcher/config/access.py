"""Finds the keys with which the launcher and its own agents authenticate themselves.

A cluster's folder of keys has a folder for each machine (`nodes.net.keys` describes its content).
The launching machine's is called `@launcher`, the others have the names of their nodes. Agents that
`launch` starts itself read their keys there too. A node at an address that other machines can reach
is never connected to without keys, unless the user writes `insecure: true`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher.errors import BadInputError
from nodes.core.events import LinkChange
from nodes.net.keys import NODES, PUBLIC, SECRET, SUFFIX, KeyFolder, KeysError
from nodes.protocol.addresses import host_of, is_exposed

LAUNCHER = "@launcher"
"""The name of the launching machine's folder; no node can have this name."""

DEFAULT_FOLDER = "keys"
"""The folder of keys, next to `cluster.yaml`, unless the cluster names another one."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a cluster is secured.

    `keys` is its folder of keys. Connections to other machines need it; those on this machine use
    it only if the user names it (`is_named`). With `insecure` no keys are used at all. `ring` has
    the launching machine's keys once they have been read (`opened`). `file` describes the cluster.
    """

    keys: Path = Path(DEFAULT_FOLDER)
    is_named: bool = False
    insecure: bool = False
    ring: KeyFolder | None = field(default=None, compare=False)
    file: Path = field(default=Path("cluster.yaml"), compare=False)

    def guards(self, address: str) -> bool:
        """Whether connections at this address are encrypted and authenticated."""
        if self.insecure or host_of(address) is None:
            return False
        return self.is_named or is_exposed(address)

    def agent_arguments(self, node: str, address: str) -> list[str]:
        """Return the key options of an agent that this launcher starts.

        Raises `BadInputError` if it needs keys and there are none.
        """
        if self.insecure:
            return ["--insecure"]
        if not self.guards(address):
            return []
        folder = self.keys / node
        if not (folder / SECRET).exists():
            raise BadInputError(
                _no_keys(f"node {node!r}, whose agent is started here,", folder, self.file)
            )
        return ["--keys", str(folder)]


def exposed(access: Access, control: str, data: str | None) -> str:
    """Return the one of a node's two addresses that needs keys, if only one does."""
    return data if data is not None and access.guards(data) else control


def opened(access: Access, addresses: Mapping[str, str]) -> Access:
    """Return `access` with the launching machine's keys, if the addresses (of nodes) need any.

    They are read only here, so that all that follows uses the same keys. Raises as `launcher_keys`.
    """
    return replace(access, ring=launcher_keys(access, addresses))


def launcher_keys(access: Access, addresses: Mapping[str, str]) -> KeyFolder | None:
    """Return the launching machine's keys, or None if no node at `addresses` needs any.

    Raises `BadInputError` if they are missing, unsafe, or do not include a node's public key.
    """
    guarded = [node for node, address in addresses.items() if access.guards(address)]
    if not guarded:
        return None
    folder = access.keys / LAUNCHER
    if access.ring is None and not folder.exists():
        first = guarded[0]
        raise BadInputError(_no_keys(f"node {first!r} at {addresses[first]}", folder, access.file))
    try:
        ring = access.ring or KeyFolder(folder)
        for node in guarded:
            ring.key_of(node)
    except KeysError as error:
        raise BadInputError(str(error)) from error
    return ring


def _no_keys(who: str, folder: Path, file: Path) -> str:
    return (
        f"{who} can be reached by other machines, and there are no keys in {folder}: "
        f"`launch {shlex.quote(str(file))} --make-keys` makes the keys of all nodes. Or write "
        "`insecure: true`: "
        "then everybody who reaches the nodes can run networks on them and read their results"
    )


def barred(node: str, address: str, folder: Path | None, why: LinkChange) -> BadInputError:
    """The error about an agent and this launcher, with the keys in `folder`, that could not
    authenticate each other."""
    where = f"node {node!r} at {address}"
    if folder is None:
        return BadInputError(
            f"{where} requires a key, and this launcher uses none there: name the folder of keys "
            "in cluster.yaml (`keys: keys`, without `insecure: true`), or start that agent without "
            "--keys"
        )
    if why is LinkChange.KEY_REFUSED:
        return BadInputError(
            f"{where} does not admit this launcher's key: copy {folder / PUBLIC} to that machine, "
            "as launchers/launcher.pub in its folder of keys"
        )
    if why is LinkChange.KEYS_ON_ONE_END:
        return BadInputError(
            f"{where} uses no keys: start its agent with --keys DIR, or write `insecure: true` in "
            "cluster.yaml"
        )
    return BadInputError(
        f"{where} closes every connection during the handshake. Either its key is not the one in "
        f"{folder / NODES / (node + SUFFIX)} (copy the {PUBLIC} of its folder of keys to this "
        "file, or its folder of keys to that machine), or too many connections reach its port "
        "(the agent's log says from where), or another program than node-agent listens there"
    )
