"""A saved plan: what lies in its folder, and how it is read, checked and edited.

    plan/plan.json      the assignment, node by node, to be edited; the rewrites that lead from the
                        model's layers to the assigned ones; then what follows from both, to be
                        read only: phases, channels and predictions are made anew when it is run
    plan/cluster.yaml   the cluster it was made for, with absolute paths
    plan/subnets/       the ONNX model of every phase, named by content

The plan remembers the digest of its model and the names of its nodes, and is refused for others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnn.errors import ModelError
from cnn.network import Network
from cnn.rewrite.rewrites import Rewrite, from_data
from launcher.config.sentences import suggestion
from launcher.errors import BadInputError, reason
from launcher.small_files import read_json

PLAN = "plan.json"
CLUSTER = "cluster.yaml"
SUBNETS = "subnets"
FORMAT = 1
"""Of `plan.json`; raised when an old one could be misread."""

_STRING = re.compile(r'\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class SavedPlan:
    """What a `plan.json` says: layer → node, and for which model and nodes it was made.

    The layers are those that `rewrites` make of the model's. `groups` are the nodes that the
    assignment names, with layers or without. `lines` has the line of every layer and node in the
    file. `edited` says whether the assignment is another than the one that was saved, which is the
    one that `optimal` and `gap` (see `partition.plan.Plan`) are about.
    """

    path: Path
    model: str
    model_digest: str
    nodes: tuple[str, ...]
    strategy: str
    explanation: str
    assignment: Mapping[str, str]
    groups: tuple[str, ...]
    lines: Mapping[str, int]
    edited: bool
    rewrites: tuple[Rewrite, ...] = ()
    optimal: bool | None = None
    gap: float | None = None

    def error(self, name: str, what: str) -> BadInputError:
        """`plan/plan.json, line 12, assignment: WHAT` with the line of a layer or node."""
        line = f", line {self.lines[name]}" if name in self.lines else ""
        return BadInputError(f"{self.path}{line}, assignment: {what}")


def is_plan(path: Path) -> bool:
    """Whether `path` is the folder of a saved plan, or its `plan.json`."""
    return path.name == PLAN or (path.is_dir() and (path / PLAN).exists())


def read_plan(folder: Path) -> SavedPlan:
    """Read `folder`'s `plan.json`; raises `BadInputError` with its line if it is malformed."""
    path = folder / PLAN
    text, data = read_json(path)
    return _saved(path, text, data)


def check_made_for(saved: SavedPlan, model: str, digest: str, nodes: Iterable[str]) -> None:
    """Refuse a plan for another model or other nodes; raises `BadInputError`."""
    names = tuple(nodes)
    if saved.model_digest != digest:
        raise BadInputError(
            f"{saved.path}: the plan was made for another model than {model}, or another "
            f"version of it ({saved.model}, digest {saved.model_digest[:12]}…, "
            f"now {digest[:12]}…); "
            "make a new plan with --plan-only --save"
        )
    if set(saved.nodes) != set(names):
        raise BadInputError(
            f"{saved.path}: the plan was made for the nodes {', '.join(saved.nodes)}, but the "
            f"cluster has {', '.join(names)}; make a new plan with --plan-only --save"
        )


def check_assignment(saved: SavedPlan, network: Network, nodes: Iterable[str]) -> None:
    """Refuse an assignment that is not one of `network`, rewritten, to `nodes`.

    Every layer must be there once, on a node that exists. Raises `BadInputError`.
    """
    names = tuple(nodes)
    for node in saved.groups:
        if node not in names:
            close = suggestion(node, names) or f"; the nodes are {', '.join(names)}"
            raise saved.error(node, f"there is no node {node!r}{close}")
    for layer in saved.assignment:
        if layer not in network.layer:
            raise saved.error(
                layer, f"{network.name} has no layer {layer!r}{suggestion(layer, network.layer)}"
            )
    missing = [layer.name for layer in network.layers if layer.name not in saved.assignment]
    if missing:
        more = f" and {len(missing) - 1} more layers are" if len(missing) > 1 else " is"
        raise saved.error("", f"layer {missing[0]!r}{more} on no node; list each under one")


def _saved(path: Path, text: str, data: object) -> SavedPlan:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BadInputError(
            f"{path}: is not a plan that this version of launch reads (format {FORMAT}); "
            "make it with --plan-only --save"
        )
    for key in ("model", "model_digest", "strategy", "explanation"):
        if not isinstance(data.get(key), str):
            raise BadInputError(f"{path}: the key {key!r} is missing or no text")
    grouped = data.get("assignment")
    if not isinstance(grouped, dict) or not all(
        isinstance(layers, list) and all(isinstance(layer, str) for layer in layers)
        for layers in grouped.values()
    ):
        raise BadInputError(f"{path}: assignment must be a mapping of nodes to lists of layers")
    rewrites = data.get("rewrites", [])
    if not isinstance(rewrites, list) or not all(isinstance(entry, dict) for entry in rewrites):
        raise BadInputError(f"{path}: rewrites must be a list of mappings")
    assignment: dict[str, str] = {}
    for node, layers in grouped.items():
        for layer in layers:
            if layer in assignment:
                raise BadInputError(
                    f"{path}, assignment: layer {layer!r} is listed twice, under "
                    f"{assignment[layer]!r} and {node!r}; keep one"
                )
            assignment[layer] = node
    derived = data.get("derived")
    nodes, before = _as_saved(derived if isinstance(derived, dict) else {})
    try:
        carried_out = tuple(map(from_data, rewrites))
    except (ModelError, RecursionError) as error:  # of a rewrite that is nested too deeply
        raise BadInputError(f"{path}, rewrites: {reason(error)}") from error
    optimal, gap = data.get("optimal"), data.get("gap")
    return SavedPlan(
        path=path,
        model=data["model"],
        model_digest=data["model_digest"],
        nodes=nodes or tuple(grouped),
        strategy=data["strategy"],
        explanation=data["explanation"],
        assignment=assignment,
        groups=tuple(grouped),
        lines=_lines(text, (*assignment, *grouped)),
        edited=before != assignment,
        rewrites=carried_out,
        optimal=optimal if isinstance(optimal, bool) else None,
        gap=float(gap) if isinstance(gap, int | float) else None,
    )


def _as_saved(derived: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The nodes and the assignment of the time of saving, from the part that is for reading."""
    try:
        nodes = tuple(str(node["name"]) for node in derived["nodes"])
        before = {
            str(layer): str(phase["node"])
            for phase in derived["phases"]
            for layer in phase["layers"]
        }
    except (KeyError, TypeError):
        return (), {}
    return nodes, before


def _lines(text: str, names: Iterable[str]) -> dict[str, int]:
    """The first line on which each name stands as a JSON string; the assignment comes first."""
    wanted = {json.dumps(name, ensure_ascii=False): name for name in names}
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _STRING.match(line)
        if match is not None and match[1] in wanted:
            found.setdefault(wanted[match[1]], number)
    return found
