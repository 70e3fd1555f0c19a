"""Saves plans in folders, and reads and checks saved plans, which people may edit.

    plan/plan.json      the assignment, node by node, which may be edited; the rewrites that make
                        the assigned layers from the model's; and, to be read only, what follows
                        from both: phases, channels and predictions are made again for a run
    plan/certificate.json   the plan's certificate, for `csdf check` (docs/certificates.md)
    plan/cluster.yaml   the cluster that the plan was made for, with absolute paths
    plan/subnets/       the ONNX model of every phase, named by its content

The folder of a front has a plan for each of its points, and their figures:

    front/front.json    the points with their figures, and how they were found
    front/front.svg     a picture of period and memory
    front/p01/          the plan of the point p01

A plan stores the digest of its model and the names of its nodes, and is refused for others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnn.errors import ModelError
from cnn.network import Network
from cnn.rewrite.rewrites import Rewrite, from_data, to_data
from launcher.config.kinds import file_names
from launcher.config.load import Cluster, is_file_name
from launcher.config.mistakes import no_such, suggestion
from launcher.config.redaction import without_secrets
from launcher.config.source import source_text
from launcher.errors import BadInputError, reason
from launcher.files import cannot_write, read_json, write_whole
from launcher.plan.certificates import certificate_of
from partition.plan import Plan
from partition.pricing.busy import shared_machines
from partition.pricing.memory_budget import engine_bytes

PLAN = "plan.json"
CLUSTER = "cluster.yaml"
CERTIFICATE = "certificate.json"
SUBNETS = "subnets"
FRONT = "front.json"
FORMAT = 1
"""The version of `plan.json`; increased when an old file could be misread."""

_STRING = re.compile(r'\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class SavedPlan:
    """The content of a `plan.json`: an assignment (layer → node), its model and its nodes.

    The layers are those that `rewrites` make from the model's. `groups` are the nodes that the
    assignment names, with layers or without. `lines` has the line of every layer and node in the
    file. `edited` says whether the assignment differs from the one that was saved; `optimal` and
    `gap` (see `partition.plan.Plan`) are those of the saved one.
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

    def fits(self, nodes: Collection[str] | None) -> bool:
        """Whether these nodes suffice for the plan; None stands for all nodes."""
        return nodes is None or set(self.assignment.values()) <= set(nodes)

    def error(self, name: str, what: str) -> BadInputError:
        """Return the error `plan/plan.json, line 12, assignment: WHAT` about a layer or node."""
        line = f", line {self.lines[name]}" if name in self.lines else ""
        return BadInputError(f"{self.path}{line}, assignment: {what}")


def is_plan(path: Path) -> bool:
    """Whether `path` is the folder of a saved plan, or its `plan.json`."""
    return path.name == PLAN or (path.is_dir() and (path / PLAN).exists())


def read_plan(folder: Path) -> SavedPlan:
    """Read the `plan.json` in `folder`; raises `BadInputError` with its line if it is malformed."""
    path = folder / PLAN
    text, data = read_json(path)
    return _saved(path, text, data)


def check_made_for(saved: SavedPlan, model: str, digest: str, nodes: Iterable[str]) -> None:
    """Raise `BadInputError` if a plan was made for another model or for other nodes."""
    names = tuple(nodes)
    if saved.model_digest != digest:
        raise BadInputError(
            f"{saved.path}: the plan was made for another model than {model}, or for another "
            f"version of it ({saved.model}, digest {saved.model_digest[:12]}…, "
            f"now {digest[:12]}…); "
            "make a new plan with launch --plan-only --save"
        )
    if set(saved.nodes) != set(names):
        raise BadInputError(
            f"{saved.path}: the plan was made for the nodes {', '.join(saved.nodes)}, but the "
            f"cluster has {', '.join(names)}; make a new plan with launch --plan-only --save"
        )


def check_assignment(saved: SavedPlan, network: Network, nodes: Iterable[str]) -> None:
    """Raise `BadInputError` unless every layer of `network` is assigned to one of `nodes`.

    `network` has the layers that the plan's rewrites make.
    """
    names = tuple(nodes)
    for node in saved.groups:
        if node not in names:
            raise saved.error(node, no_such("node", node, names))
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
            "make it with launch --plan-only --save"
        )
    for key in ("model", "model_digest", "strategy", "explanation"):
        if not isinstance(data.get(key), str):
            raise BadInputError(f"{path}: the key {key!r} is missing or is not text")
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
    """Return the nodes and the assignment when the plan was saved, from its read-only part."""
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
    """Return the first line that begins with each name, which is in the assignment."""
    wanted = {json.dumps(name, ensure_ascii=False): name for name in names}
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _STRING.match(line)
        if match is not None and match[1] in wanted:
            found.setdefault(wanted[match[1]], number)
    return found


def check_save_folder(folder: Path) -> None:
    """Raise `BadInputError` if saving would overwrite a `cluster.yaml` of the user's."""
    if (folder / CLUSTER).exists() and not (folder / PLAN).exists():
        raise BadInputError(
            f"--save {str(folder)!r}: has a {CLUSTER} that does not belong to a saved plan and "
            "would be overwritten; choose another folder"
        )


def check_front_folder(folder: Path) -> None:
    """Raise `BadInputError` unless a front can be saved in `folder`, which must be new or empty."""
    if folder.exists() and not folder.is_dir():
        raise BadInputError(f"--output {str(folder)!r}: is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()):
        raise BadInputError(
            f"--output {str(folder)!r}: the folder is not empty; name a new one, so that no plan "
            "of an earlier front is mistaken for one of this"
        )


def no_target(path: Path) -> BadInputError:
    """Return the error about a target of `launch` that is neither a plan nor a cluster."""
    front = path if (path / FRONT).exists() else path.parent
    if not (front / FRONT).exists():
        return BadInputError(f"{path}: the folder holds neither a {PLAN} nor a {CLUSTER}")
    names = sorted(each.name for each in front.iterdir() if is_plan(each))
    known = f"{names[0]} to {names[-1]}" if len(names) > 1 else ", ".join(names)
    if path == front:
        return BadInputError(
            f"{path}: holds a front; name one of its points ({known}), such as "
            f"launch {front / (names or ['p01'])[0]}"
        )
    return BadInputError(f"{path}: the front {front} has no point {path.name!r}; it has {known}")


def save_plan(folder: Path, plan: Plan, cluster: Cluster, option: str = "--save") -> None:
    """Write `plan.json`, its certificate and `cluster.yaml` into `folder`, which may be missing.

    Raises `BadInputError`, which names the `option` that asked for it, if that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text, certificate = certified(plan, cluster.model)
        write_whole(folder / PLAN, text, durable=True)
        write_whole(folder / CERTIFICATE, certificate, durable=True)
        head = "# Made by launch --save; the plan in this folder is for these nodes.\n"
        write_whole(folder / CLUSTER, head + cluster_text(cluster), durable=True, mode=0o600)
    except OSError as error:
        raise BadInputError(f"{option} {error.filename!r}: {cannot_write(error)}") from None


def certified(plan: Plan, model: str) -> tuple[str, str]:
    """Return the text of the plan's `plan.json`, and its certificate, which has been checked.

    `model` names the model's file. Raises `UncertifiedError` if the certificate is refused.
    """
    text = plan_text(plan, model)
    return text, certificate_of(text)


def plan_text(plan: Plan, model: str) -> str:
    """Return the text of the plan's `plan.json`; `model` names the model's file."""
    return _plan_text(_plan_data(plan, model))


def _plan_text(data: dict[str, Any]) -> str:
    """Return JSON with a line for every value, but one line for each rewrite."""
    entries = []
    for key, value in data.items():
        if key == "rewrites" and value:
            lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False) for entry in value)
            text = f"[\n{lines}\n ]"
        else:
            text = json.dumps(value, indent=1, ensure_ascii=False).replace("\n", "\n ")
        entries.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _plan_data(plan: Plan, model: str) -> dict[str, Any]:
    order = {name: number for number, name in enumerate(_layers_in_order(plan))}
    assignment: dict[str, list[str]] = {device.name: [] for device in plan.devices}
    for layer in sorted(plan.assignment, key=order.__getitem__):
        assignment[plan.assignment[layer]].append(layer)
    return {
        "format": FORMAT,
        "assignment": assignment,
        "rewrites": [to_data(rewrite) for rewrite in plan.rewrites],
        "model": model,
        "model_digest": plan.model_digest,
        "strategy": plan.strategy,
        "explanation": plan.explanation,
        **({} if plan.optimal is None else {"optimal": plan.optimal}),
        **({} if plan.gap is None else {"gap": plan.gap}),
        "derived": {
            "note": "derived again from the assignment for each run; editing this does nothing",
            "proof": plan.proof,
            "batch": plan.batch,
            "period_s": plan.frame_s,
            "latency_s": plan.latency_s,
            "bytes_per_frame": plan.bytes_per_frame,
            "nodes": [
                {
                    "name": device.name,
                    "memory_predicted_bytes": plan.memory[device.name].total_bytes,
                    "memory_eq2_bytes": plan.memory[device.name].eq2_bytes,
                }
                for device in plan.devices
            ],
            "phases": [
                {
                    "name": phase.name,
                    "node": phase.device,
                    "skew": phase.skew,
                    "predicted_s": round(phase.predicted_s, 9),
                    "layers": list(phase.layers),
                }
                for phase in plan.phases
            ],
            "channels": [
                {
                    "tensor": channel.tensor.name,
                    "from": channel.source_device,
                    "to": channel.target_device,
                    "source": channel.source,
                    "targets": list(channel.targets),
                    "copy": channel.copy,
                    "bytes": channel.tensor.bytes,
                    "encoding": channel.encoding,
                    "wire_bytes": channel.wire_bytes,
                    "capacity_frames": channel.capacity_frames,
                    "unsent_frames": channel.unsent_frames,
                }
                for channel in plan.channels
            ],
            "dealing": list(plan.dealing),
            "costs": _costs(plan),
        },
    }


def _costs(plan: Plan) -> dict[str, Any]:
    """Return what layers take on each node, and the rooms of nodes, as `[places, taken]`.

    A room is a node, or a machine with fewer cores than nodes. Nanoseconds are those of a cycle of
    `dealing`, rounded down. The bytes that are taken are those of an engine with one phase.
    """
    copies = {layer: phase.copy for phase in plan.phases for layer in phase.layers}
    nodes = range(len(plan.devices))
    machines = shared_machines(plan.devices)
    engines = [device.engine_overhead for device in plan.devices]
    return {
        "nanoseconds": {
            "rooms": [[1, 0] for _ in nodes] + [[machine.cores, 0] for machine in machines],
            "nodes": [
                [node, *(len(nodes) + i for i, one in enumerate(machines) if node in one.members)]
                for node in nodes
            ],
            "layers": {
                name: [int(1e9 * s) * plan.dealing.count(copies[name]) for s in costs.seconds]
                for name, costs in plan.layers.items()
            },
        },
        "bytes": {
            "rooms": [[1, engine_bytes(1, engine=engine)] for engine in engines],
            "nodes": [[node] for node in nodes],
            "layers": {
                name: [costs.weight_bytes + engine.layer_bytes for engine in engines]
                for name, costs in plan.layers.items()
            },
        },
    }


def _layers_in_order(plan: Plan) -> list[str]:
    placed = [layer for phase in plan.phases for layer in phase.layers]
    return [*placed, *(layer for layer in plan.assignment if layer not in set(placed))]


def cluster_text(cluster: Cluster, *, keeps_token: bool = False) -> str:
    """Return the configuration as YAML, with absolute paths and without default values.

    It may have passwords, in addresses for instance: a file with it is its user's alone.
    """
    return source_text(_cluster_data(cluster, keeps_token=keeps_token))


def shown_cluster_text(cluster: Cluster) -> str:
    """Return what `cluster_text` does, without secrets."""
    return source_text(without_secrets(_cluster_data(cluster, keeps_token=False)))


def _cluster_data(cluster: Cluster, *, keeps_token: bool) -> dict[str, Any]:
    config = cluster.config
    data = config.model_dump(mode="json", exclude_defaults=True)
    several = isinstance(config.model, tuple)
    for entry, model in zip(
        data["model"] if several else [data["model"]], cluster.models, strict=True
    ):
        if is_file_name(model.config.path):
            entry["path"] = str(Path(model.path).resolve())
    for key in ("labels", "truth", "profile"):
        if key in data:
            data[key] = str(cluster.path(data[key]).resolve())
    if any(cluster.access.guards(node.address or "") for node in config.nodes):
        data["keys"] = str(cluster.access.keys.resolve())
    serve = data.get("serve", {})
    for key in {"tls_certificate", "tls_key"} & serve.keys():
        serve[key] = str(cluster.path(serve[key]).resolve())
    if not keeps_token:
        serve.pop("token", None)  # a secret has one copy
    for entry, sink in zip(data.get("sinks", ()), config.sinks, strict=True):
        entry |= {key: str(cluster.path(name).absolute()) for key, name in file_names(sink).items()}
    given = [(data["inputs"][name], own) for name, own in config.inputs.items()]
    given += [(data["input"], config.input)] if "input" in data else []
    for entry, own in given:
        if own.source is not None:
            paths = own.source.paths(cluster.folder)
            entry["source"] |= {key: str(path.absolute()) for key, path in paths.items()}
        elif not own.is_random:
            entry["files"] = [str(cluster.path(pattern).absolute()) for pattern in own.files]
    return {key: data[key] for key in type(config).model_fields if key in data}
