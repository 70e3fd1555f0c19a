"""Writes a plan into a folder (see `launcher.plan.files` for what lies there)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from cnn.rewrite.rewrites import to_data
from launcher.config.load import Cluster, is_file_name
from launcher.errors import BadInputError
from launcher.plan.files import CLUSTER, FORMAT, PLAN
from launcher.whole_files import unwritten, write_whole
from partition.plan import Plan


def check_save_folder(folder: Path) -> None:
    """Refuse a folder whose `cluster.yaml` is the user's own, which saving would overwrite."""
    if (folder / CLUSTER).exists() and not (folder / PLAN).exists():
        raise BadInputError(
            f"--save {str(folder)!r}: holds a {CLUSTER} that is no saved plan's and would be "
            "overwritten; choose another folder"
        )


def save_plan(folder: Path, plan: Plan, cluster: Cluster) -> None:
    """Write `plan.json` and `cluster.yaml` into `folder`, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / PLAN, _plan_text(_plan_data(plan, cluster.model)), durable=True)
        write_whole(folder / CLUSTER, _cluster_text(cluster), durable=True)
    except OSError as error:
        raise BadInputError(f"--save {error.filename!r}: {unwritten(error)}") from None


def _plan_text(data: dict[str, Any]) -> str:
    """JSON with a line for every value, except that each rewrite stands on one."""
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
            "note": "made anew from the assignment when the plan is run; editing this does nothing",
            "proof": plan.proof,
            "period_s": plan.period_s,
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
                    "predicted_s": phase.predicted_s,
                    "layers": list(phase.layers),
                }
                for phase in plan.phases
            ],
            "channels": [
                {
                    "tensor": channel.tensor.name,
                    "from": channel.source_device,
                    "to": channel.target_device,
                    "bytes": channel.tensor.bytes,
                    "capacity_frames": channel.capacity_frames,
                }
                for channel in plan.channels
            ],
        },
    }


def _layers_in_order(plan: Plan) -> list[str]:
    placed = [layer for phase in plan.phases for layer in phase.layers]
    return [*placed, *(layer for layer in plan.assignment if layer not in set(placed))]


def _cluster_text(cluster: Cluster) -> str:
    """The configuration as it was run, with absolute paths and nothing that is a default."""
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
    given = [(data["inputs"][name], own) for name, own in config.inputs.items()]
    given += [(data["input"], config.input)] if "input" in data else []
    for entry, own in given:
        if not own.is_random:
            entry["files"] = [str(cluster.path(pattern).absolute()) for pattern in own.files]
    ordered = {key: data[key] for key in type(config).model_fields if key in data}
    return "# Made by launch --save; the plan beside it is for these nodes.\n" + yaml.safe_dump(
        ordered, sort_keys=False, allow_unicode=True, width=100
    )
