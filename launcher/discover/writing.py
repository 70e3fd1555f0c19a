"""Adds nodes to a cluster.yaml, and leaves everything else in it unchanged.

The file is text that a user has written, with comments. A YAML library that keeps comments would
rewrite all of it in its own style, so the new nodes are put into the text after the last node
instead. The result is parsed again: it must hold the same data as before and the new nodes, or
nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import yaml

from launcher.config.source import parse_source
from launcher.errors import BadInputError
from nodes.protocol.announcements import Announcement

NEW = """\
# `launch discover` has found the nodes. Name your own network and its input; docs/cluster-yaml.md
# has all keys. Make the keys of the nodes with `launch cluster.yaml --make-keys`.
model: builtin:yolov2
input: random
nodes:
"""

_NAME_LENGTH = 60


def new_nodes(data: object, found: Iterable[Announcement]) -> list[dict[str, str]]:
    """Return the entries for those agents whose address is not in `data` yet.

    A name that is taken gets a number.
    """
    nodes = data.get("nodes") if isinstance(data, dict) else None
    known = [node for node in nodes or () if isinstance(node, dict)]
    names = {str(node.get("name")) for node in known}
    addresses = {str(node.get("address")) for node in known}
    added = []
    for agent in found:
        offered = {_address(host, agent.port) for host in agent.hosts}
        if offered & addresses:
            continue
        name = _free_name(agent.name[:_NAME_LENGTH], names)
        names.add(name)
        addresses.add(agent.address)
        added.append({"name": name, "address": agent.address})
    return added


def _address(host: str, port: int) -> str:
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _free_name(name: str, taken: set[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def with_nodes(text: str, added: Sequence[dict[str, str]], name: str) -> str:
    """Return the text of a cluster.yaml with these nodes after its last one.

    `name` is the file's in messages. Raises `BadInputError` if that cannot be done safely.
    """
    before = parse_source(text, name).data
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    nodes = _value(root, "nodes")
    if not isinstance(before, dict) or not isinstance(nodes, yaml.SequenceNode) or not nodes.value:
        raise BadInputError(f"{name}: has no list `nodes` with a node, after which to add others")
    written = _in_flow(text, nodes, added) if nodes.flow_style else _in_block(text, nodes, added)
    expected = before | {"nodes": [*before["nodes"], *added]}
    try:
        after = parse_source(written, name).data
    except BadInputError:
        after = None
    if after != expected:
        raise BadInputError(
            f"{name}: its nodes are written in a form to which none can be added safely"
        )
    return written


def _value(root: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(root, yaml.MappingNode):
        return None
    return next((value for name, value in root.value if name.value == key), None)


def _entry(node: dict[str, str]) -> str:
    """Return a node as YAML on one line; names of digits only would be numbers without quotes."""
    name, address = node["name"], node["address"]
    shown = name if isinstance(parse_source(name, name).data, str) else f"'{name}'"
    return f"{{name: {shown}, address: '{address}'}}"


def _in_flow(text: str, nodes: yaml.SequenceNode, added: Sequence[dict[str, str]]) -> str:
    end = nodes.value[-1].end_mark.index
    return text[:end] + "".join(f", {_entry(node)}" for node in added) + text[end:]


def _in_block(text: str, nodes: yaml.SequenceNode, added: Sequence[dict[str, str]]) -> str:
    indent = " " * nodes.start_mark.column
    end = _end(nodes.value[-1])
    line = text.find("\n", end)
    if text[end - 1 : end] == "\n":  # the end of a text of several lines
        line = end - 1
    head, tail = (text + "\n", "") if line < 0 else (text[: line + 1], text[line + 1 :])
    return head + "".join(f"{indent}- {_entry(node)}\n" for node in added) + tail


def _end(node: yaml.Node) -> int:
    """Return where the text of a node ends; PyYAML counts comments after a block to it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)


def new_file(added: Sequence[dict[str, str]]) -> str:
    """Return the text of a new cluster.yaml with these nodes."""
    return NEW + "".join(f"  - {_entry(node)}\n" for node in added)
