"""Writes the `cluster.yaml` of a laboratory from its boards and its `lab.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from benchmarks.lab.config import LabConfig
from benchmarks.lab.layout import Layout, Place
from launcher.config.load import is_file_name, validated
from launcher.config.source import ParsedFile, parse_source
from launcher.errors import BadInputError
from partition.devices import Device

MODEL = "onnx-wheel:resnet50"
"""The network, where `lab.yaml` names none."""

NOTE = "# Written by `python -m benchmarks.lab up`: the agents of the laboratory {name!r}.\n"


def cluster(layout: Layout, folder: Path) -> dict[str, Any]:
    """The data of `cluster.yaml`; paths in it are made absolute from `folder`.

    Raises `BadInputError` for what `launch` would not take.
    """
    given = {"model": MODEL, **layout.config.cluster}
    if "nodes" in given:
        raise BadInputError("lab.yaml, cluster.nodes: the laboratory's own devices are the nodes")
    nodes = [_node(layout, place) for place in layout.places.values()]
    guard = {"keys": str(layout.keys)} if layout.config.keys else {"insecure": True}
    rate = layout.config.launcher_link
    own = {} if rate is None or not layout.isolated else {"launcher_link": _rate(rate)}
    data = {**_with_absolute_paths(given, folder), **own, "nodes": nodes, **guard}
    validated(ParsedFile("lab.yaml, under cluster", data, {}))
    return data


def text(layout: Layout, folder: Path) -> str:
    """The file's text."""
    data = cluster(layout, folder)
    written = NOTE.format(name=layout.name) + yaml.safe_dump(data, sort_keys=False)
    parse_source(written, "cluster.yaml")
    return written


def check_cluster(config: LabConfig, folder: Path) -> None:
    """Refuse what `launch` would not take, before anything is made."""
    ports = tuple(range(1, 1 + sum(line.count for line in config.devices)))
    cluster(Layout(config, folder, None, None, ports), folder)


def _node(layout: Layout, place: Place) -> dict[str, Any]:
    board = place.slice
    node: dict[str, Any] = {"name": board.name, "address": place.address}
    if board.memory is not None:
        node["memory"] = board.memory
    if layout.isolated:
        node["macs_per_s"] = Device(board.name).macs_per_s * board.cpu
        node["accelerator"] = board.board == "accelerator"
        if board.link is not None:
            node["link"] = _rate(board.link)
    return node


def _rate(bytes_per_s: float) -> str:
    return f"{round(bytes_per_s * 8)}bit/s"


def _with_absolute_paths(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    found = dict(given)
    found["model"] = _each(given["model"], "path", lambda path: _model(path, folder))
    for key in ("labels", "truth", "profile"):
        if isinstance(given.get(key), str):
            found[key] = _absolute(given[key], folder)
    if "input" in given:
        found["input"] = _input(given["input"], folder)
    if isinstance(given.get("inputs"), dict):
        found["inputs"] = {name: _input(one, folder) for name, one in given["inputs"].items()}
    return found


def _input(value: Any, folder: Path) -> Any:
    def path(text: str) -> str:
        return text if text == "random" else _absolute(text, folder)

    return _each(value, "files", path)


def _each(value: Any, key: str, change: Any) -> Any:
    """Change texts: `value` itself, members of a list, or what stands under `key` of a mapping."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return [_each(one, key, change) for one in value]
    if isinstance(value, dict) and key in value:
        return {**value, key: _each(value[key], key, change)}
    return value


def _model(path: str, folder: Path) -> str:
    return _absolute(path, folder) if is_file_name(path) else path


def _absolute(path: str, folder: Path) -> str:
    return str((folder / Path(path).expanduser()).absolute())
