"""Checks before a run that a node's engine can be built from its subnets.

For TensorRT, engines are built from the subnets on this machine, which needs no GPU
(`nodes.executors.tensor_rt.check`, in a separate process). They are built and never run: this finds
layers, dtypes and shapes that TensorRT refuses, and says nothing about results or speed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cnn.model import Model
from launcher.errors import BadInputError
from launcher.plan.subnet_files import cut_subnets
from launcher.scratch import scratch_folder
from nodes.host.process import python_command
from partition.plan import Plan, PlannedPhase


@dataclass(frozen=True)
class BuiltSubnet:
    """An engine that was built from a phase's subnet, and how long that took."""

    phase: str
    seconds: float
    engine_bytes: int


@dataclass(frozen=True)
class EngineCheck:
    """The engines that were built; the library and the GPUs that they are for, in words.

    Nothing was run with any of them.
    """

    library: str
    compute_capability: str
    subnets: tuple[BuiltSubnet, ...]

    def __str__(self) -> str:
        seconds = sum(subnet.seconds for subnet in self.subnets)
        return (
            f"{self.library} has built engines from {len(self.subnets)} subnets in {seconds:.1f} s "
            f"for compute capability {self.compute_capability}; built, not run"
        )


def tensorrt_unchecked() -> str | None:
    """Return why engines cannot be built on this machine and what to install; None if they can."""
    if find_spec("tensorrt_rtx") is None:
        return (
            "to build engines here, TensorRT-RTX must be installed: "
            "`pip install tensorrt-rtx-cu12` (x86-64; no GPU is needed)"
        )
    return None


def check_tensorrt(
    model: Model, plan: Plan, devices: Collection[str], on_done: Callable[[int, int], None]
) -> EngineCheck:
    """Build TensorRT engines from the subnets of these devices' phases.

    `on_done` is called with (subnets built, subnets in all). Raises `BadInputError` with the device
    and the layer from which TensorRT cannot build an engine.
    """
    phases = {phase.name: phase for phase in plan.phases if phase.device in devices}
    with scratch_folder() as folder:
        files = cut_subnets(model, plan, folder / "subnets", lambda _done, _all: None)
        # Copies of a phase have the same file, from which one engine is built.
        graphs = {str(files[phase].graph): phase for phase in phases}
        found = _build(folder, tuple(graphs), on_done)
        if found.error:
            phase = phases.get(graphs.get(found.failed, ""))
            if phase is None:
                raise BadInputError(found.error)
            layer = "" if "layer '" in found.error else _culprit(model, plan, phase, folder)
            raise BadInputError(f"device {phase.device!r}{layer}: {found.error}")
    library, *built = found.lines
    subnets = (
        BuiltSubnet(graphs[line["graph"]], line["seconds"], line["engine_bytes"]) for line in built
    )
    return EngineCheck(library["library"], library["compute_capability"], tuple(subnets))


def _culprit(model: Model, plan: Plan, phase: PlannedPhase, folder: Path) -> str:
    """Return the layer of a phase that cannot be built alone either; "" if each can.

    TensorRT's builder does not name it.
    """
    whole = model.rewritten(plan.rewrites) if plan.rewrites else model
    layers = {}
    for name in phase.layers:
        layer = whole.network.layer[name]
        cut = whole.cut((name,), layer.inputs, layer.outputs, folder / "layers")
        layers[str(cut.graph)] = name
    failed = _build(folder, tuple(layers), lambda _done, _all: None).failed
    return f", layer {layers[failed]!r}" if failed else ""


@dataclass(frozen=True)
class _Found:
    """The lines that the process printed, and the file and the sentence with which it ended."""

    lines: Sequence[dict[str, Any]]
    failed: str
    error: str


def _build(folder: Path, graphs: Sequence[str], on_done: Callable[[int, int], None]) -> _Found:
    """Build engines from files in a separate process, up to the first that fails."""
    command = python_command("nodes.executors.tensor_rt.check", str(folder / "engines"), *graphs)
    lines: list[dict[str, Any]] = []
    with (
        (folder / "check.log").open("w+", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            for line in process.stdout or ():
                on_done(len(lines), len(graphs))
                lines.append(json.loads(line))
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        log.seek(0)
        said = log.read().strip().splitlines() or [f"engines are not built: exit code {code}"]
    failed = next((line["failed"] for line in lines if "failed" in line), "")
    return _Found(lines, failed, said[-1] if code else "")
