"""The keys by which a cluster's agents are reached; nodes that need keys are never reached without.

A cluster's folder of keys has a folder for each machine (`nodes.net.keys` says what lies there):
that of the launching machine is called `@launcher`, the others like their nodes. Agents that
`launch` starts itself find theirs there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from launcher.errors import BadInputError
from nodes.core.events import LinkChange
from nodes.net.keys import NODES, PUBLIC, SECRET, SUFFIX, KeyFolder, KeysError
from nodes.protocol.addresses import host_of, is_exposed

LAUNCHER = "@launcher"
"""The launching machine's folder; no node can be called so."""

DEFAULT_FOLDER = "keys"
"""Where the keys are unless the cluster names another folder: beside `cluster.yaml`."""


@dataclass(frozen=True, slots=True)
class Access:
    """How a cluster is secured.

    `keys` is its folder of keys. Connections to other machines need it; those on this one use it
    only if it `is_named` by the user. `insecure`: no keys at all, because the user says so.
    `ring` are the launching machine's keys once they were read (`opened`).
    """

    keys: Path = Path(DEFAULT_FOLDER)
    is_named: bool = False
    insecure: bool = False
    ring: KeyFolder | None = field(default=None, compare=False)

    def guards(self, address: str) -> bool:
        """Whether connections at this address are encrypted and authenticated."""
        if self.insecure or host_of(address) is None:
            return False
        return self.is_named or is_exposed(address)

    def agent_arguments(self, node: str, address: str) -> list[str]:
        """The key options of an agent that we start; raises `BadInputError` if it has none."""
        if self.insecure:
            return ["--insecure"]
        if not self.guards(address):
            return []
        folder = self.keys / node
        if not (folder / SECRET).exists():
            raise BadInputError(_no_keys(f"node {node!r}, whose agent is started here,", folder))
        return ["--keys", str(folder)]


def opened(access: Access, addresses: Mapping[str, str]) -> Access:
    """The same with the launching machine's keys read, if they are needed: once, and all that
    follows goes by them. Raises as `launcher_keys`."""
    return replace(access, ring=launcher_keys(access, addresses))


def launcher_keys(access: Access, addresses: Mapping[str, str]) -> KeyFolder | None:
    """The launching machine's keys, if nodes at these addresses have to be reached with any.

    Raises `BadInputError` if they are missing, unsafe, or lack one of the nodes'.
    """
    guarded = [node for node, address in addresses.items() if access.guards(address)]
    if not guarded:
        return None
    folder = access.keys / LAUNCHER
    if access.ring is None and not folder.exists():
        first = guarded[0]
        raise BadInputError(_no_keys(f"node {first!r} at {addresses[first]}", folder))
    try:
        ring = access.ring or KeyFolder(folder)
        for node in guarded:
            ring.key_of(node)
    except KeysError as error:
        raise BadInputError(str(error)) from error
    return ring


def _no_keys(who: str, folder: Path) -> str:
    return (
        f"{who} can be reached by other machines, and there are no keys in {folder}: "
        "`launch cluster.yaml --make-keys` makes those of all nodes; or write `insecure: true`, "
        "and whoever reaches the nodes can run networks on them and read what they compute"
    )


def barred(node: str, address: str, folder: Path | None, why: LinkChange) -> BadInputError:
    """Why the agent at an address and we, with the keys in `folder`, could not agree on who we
    are."""
    where = f"node {node!r} at {address}"
    if folder is None:
        return BadInputError(
            f"{where} wants a key, and this launcher uses none there: name the folder of keys in "
            "cluster.yaml (`keys: keys`), or start that agent without --keys"
        )
    if why is LinkChange.STRANGER:
        return BadInputError(
            f"{where} does not admit this launcher's key: put {folder / PUBLIC} there, as "
            "launchers/launcher.pub in its folder of keys"
        )
    if why is LinkChange.UNLIKE:
        return BadInputError(
            f"{where} uses no keys: start its agent with --keys DIR, or write `insecure: true` in "
            "cluster.yaml"
        )
    return BadInputError(
        f"{where} closes every connection before the handshake has ended: it has another key than "
        f"{folder / NODES / (node + SUFFIX)} (copy the {PUBLIC} of its folder of keys to there, or "
        "the folder of keys to it), or its port is overrun (the agent's log there says by whom), "
        "or something else than a node-agent listens there"
    )
