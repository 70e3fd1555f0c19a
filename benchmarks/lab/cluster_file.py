"""Writes the `cluster.yaml` of a laboratory from its boards and its `lab.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.lab.cgroups import Hierarchies
from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Layout, Place
from launcher.config.load import validated
from launcher.config.source import ParsedFile
from launcher.errors import BadInputError
from partition.devices import Device

MODEL = "onnx-wheel:resnet50"
"""The network, where `lab.yaml` names none."""

NOTE = "# Written by `python -m benchmarks.lab up`: the agents of the laboratory {name!r}.\n"


def cluster(layout: Layout) -> dict[str, Any]:
    """The data of `cluster.yaml`; raises `BadInputError` for what `launch` would not take."""
    given = {"model": MODEL, **layout.config.cluster}
    if "nodes" in given:
        raise BadInputError("lab.yaml, cluster.nodes: the laboratory's own devices are the nodes")
    nodes = [_node(place) for place in layout.places.values()]
    guard = {"keys": str(layout.keys)} if layout.config.keys else {"insecure": True}
    data = {**given, "nodes": nodes, **guard}
    validated(ParsedFile("lab.yaml, under cluster", data, {}))
    return data


def text(layout: Layout) -> str:
    """The file's text."""
    return NOTE.format(name=layout.name) + yaml.safe_dump(cluster(layout), sort_keys=False)


def check_cluster(config: LabConfig) -> None:
    """Refuse what `launch` would not take, before anything is made."""
    cluster(Layout(config, Path(), "10.78.0.0/24", Hierarchies(1)))


def _node(place: Place) -> dict[str, Any]:
    board = place.slice
    node: dict[str, Any] = {"name": board.name, "address": place.address}
    if board.memory is not None:
        node["memory"] = board.memory
    node["macs_per_s"] = Device(board.name).macs_per_s * board.cpu
    node["accelerator"] = board.board == "accelerator"
    if board.link is not None:
        node["link"] = f"{round(board.link * 8)}bit/s"
    return node
