"""Group a device's layers into phases such that the graph of all phases is acyclic.

A layer's **level** counts the device boundaries on the way from it to the end of the network:
level(l) = max over its successors s of level(s) + (1 if s lies on another device), and 0 for a
layer without successors. Layers of one device and one level are one group. An edge between two
groups then always leads to a lower level, so the graph of the groups has no cycle. This is how §4.3
of Tang & Stefanov (2021) avoids deadlock, and it gives their example exactly. Layers are as late as
they can be, and layers of one group need not be connected (branches of the same depth fire
together).

**Hoisting** then merges groups if that saves a firing and a buffer. Group B joins the nearest
group A of its device from which it reads, under two conditions: nothing else that B reads comes
from A's level or below; and B's outputs, counted once per device that reads them, have no more
bytes than what B reads from A alone. Levels still fall along every edge between groups, so the
result is acyclic by construction; and no buffer grows, because B's output now waits where its input
waited. Groups without an edge between them are merged on equal levels only, since otherwise one
would wait for the other's inputs.

Both passes are linear in the number of layers and edges. Layers and devices are integers, so that
the grouping can run inside a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """One tensor: the layer that makes it, the layers that read it, and its size.

    Layers are numbers in a topological order. `producer` is −1 for a network input.
    """

    producer: int
    readers: tuple[int, ...]
    size_bytes: int
    is_output: bool


def levels(edges: Sequence[Edge], device: Sequence[int]) -> list[int]:
    """Return the level of every layer; `device` numbers each layer's device.

    `edges` must be ordered by producer, as layers are.
    """
    level = [0] * len(device)
    for edge in reversed(edges):
        if edge.producer < 0:
            break
        own = device[edge.producer]
        highest = level[edge.producer]
        for reader in edge.readers:
            highest = max(highest, level[reader] + (device[reader] != own))
        level[edge.producer] = highest
    return level


def group(edges: Sequence[Edge], device: Sequence[int]) -> list[list[int]]:
    """Return the groups in a topological order of their graph, each with ascending layers.

    `edges` must start with the network inputs and be ordered by producer.
    """
    level = levels(edges, device)
    members: dict[tuple[int, int], list[int]] = {}
    for layer, own in enumerate(device):
        members.setdefault((-level[layer], own), []).append(layer)
    reads: list[list[Edge]] = [[] for _ in device]
    makes: list[list[Edge]] = [[] for _ in device]
    for edge in edges:
        if edge.producer >= 0:
            makes[edge.producer].append(edge)
            for reader in edge.readers:
                reads[reader].append(edge)
    for key in sorted(members):
        target = _hoist_to(members[key], device, level, reads, makes)
        if target is not None:
            layers = members.pop(key)
            members[-target, key[1]].extend(layers)
            for layer in layers:
                level[layer] = target
    return [sorted(members[key]) for key in sorted(members)]


def _hoist_to(
    layers: list[int],
    device: Sequence[int],
    level: Sequence[int],
    reads: Sequence[Sequence[Edge]],
    makes: Sequence[Sequence[Edge]],
) -> int | None:
    """Return the level of the group that the group of `layers` should join, or None."""
    own_device, own_level = device[layers[0]], level[layers[0]]
    incoming = {
        id(edge): edge
        for layer in layers
        for edge in reads[layer]
        if device[edge.producer] != own_device or level[edge.producer] != own_level
    }.values()
    nearest = min(
        (level[edge.producer] for edge in incoming if device[edge.producer] == own_device),
        default=None,
    )
    if nearest is None:
        return None
    saved = 0
    for edge in incoming:
        if device[edge.producer] != own_device:
            if level[edge.producer] <= nearest:
                return None
        elif level[edge.producer] == nearest and all(
            level[reader] in (nearest, own_level)
            for reader in edge.readers
            if device[reader] == own_device
        ):
            saved += edge.size_bytes
    for layer in layers:
        for edge in makes[layer]:
            places = {
                device[reader]
                for reader in edge.readers
                if device[reader] != own_device or level[reader] != own_level
            }
            saved -= edge.size_bytes * (len(places) + edge.is_output)
    return nearest if saved >= 0 else None
