"""Takes apart what the phases of a plan cost beyond the layers that they compute.

    python -m benchmarks.phase_costs [NET | PLAN] [--strategy vertical] [--devices 10] [--json]

NET is a network, which `--strategy` divides over `--devices` equal accelerators; PLAN is the folder
of a saved plan. One process prepares and loads the whole network and the subnet of every phase as
an agent does, on one thread. Each turn computes a frame by the whole network and then by the phases
in order, each from the tensors that the phases before it have made. All times are the least of all
turns, because every disturbance makes a run longer.

What the phases take together beyond the whole network is the sum of these:

- *conversions*: the engine's own operators that convert a tensor to its blocked layout or back, at
  the borders of a phase or inside;
- *unfused*: operators that run by themselves in a phase, and as a part of another operator in the
  whole network;
- *kernels*: all other operators, less what they take in the whole network: inputs and weights that
  have left the caches, and kernels that differ;
- *session*: the time of a run besides the operators: Python, the engine's session, new output
  arrays and their page faults. It is the thread's processor time less that of the operators.

The times of operators are those of the engine's own profiler, which measures elapsed time; a
profiled session runs beside each plain one, in the same turns. Beside the sum stand, for each
phase, its time when it runs several times in a row and finds its weights in the caches (`again`),
and the page faults of a run. `wire` is what the tensors that other devices send to the phase or
receive from it cost the threads that serve the network: half of what each costs at both ends, by
the figures that an agent's rehearsal finds.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnx

import cnn
from benchmarks.lab.replica import frame
from benchmarks.report import Figure, Table, print_json, report
from cnn.network import Network
from csdf.conversion.from_network import HOST, convert
from ga.strategies import find_strategy
from launcher.plan.files import is_plan, read_plan
from nodes.execution.rehearsal import MORE, Rehearsal, RehearsedPhase, WireCosts
from nodes.executors.base import Array, LoadedSubnet, LoadOptions
from nodes.executors.onnx.file import inspect
from nodes.executors.onnx.optimise import MODEL
from nodes.executors.onnx.packing import UNPACKED
from nodes.executors.onnx.sessions import (
    import_onnxruntime,
    keep_packing_off,
    loading_options,
)
from nodes.executors.registry import open_executor
from nodes.net.loopback import Loopback
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan, plan_solution
from partition.prediction.timing import cut_bytes
from partition.pricing.compute_time import layer_seconds
from partition.strategies.base import Problem

CONVERSIONS = frozenset({"ReorderInput", "ReorderOutput"})
WARM_UP = 2
IN_A_ROW = 5
OPTIONS = LoadOptions(threads=1)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of an optimised graph: its kind, and the layer of the network that it computes
    (the first one, if it computes several; "" for a conversion)."""

    kind: str
    layer: str


class Profiled:
    """A prepared subnet in a session that records the time of every operator."""

    def __init__(self, prepared: Path, network: Network, folder: Path) -> None:
        ort = import_onnxruntime()
        settings = loading_options(ort, OPTIONS, optimised=True)
        if (prepared.parent / UNPACKED).exists():
            keep_packing_off(settings)
        settings.enable_profiling = True
        settings.profile_file_prefix = str(folder / prepared.parent.name)
        self._session = ort.InferenceSession(
            str(prepared), settings, providers=["CPUExecutionProvider"]
        )
        self.operators = operators_of(prepared, network)

    def run(self, inputs: Mapping[str, Array]) -> None:
        """Compute a frame."""
        self._session.run(None, dict(inputs))

    def seconds(self) -> dict[str, float]:
        """Return by operator's name the least that it took; nothing can run afterwards."""
        file = Path(self._session.end_profiling())
        found: dict[str, list[float]] = {name: [] for name in self.operators}
        for event in json.loads(file.read_text("utf-8")):
            name = event["name"].removesuffix("_kernel_time")
            if event["cat"] == "Node" and name != event["name"]:
                found[name].append(event["dur"] / 1e6)
        file.unlink()
        return {name: min(own[WARM_UP:]) for name, own in found.items()}


def operators_of(prepared: Path, network: Network) -> dict[str, Operator]:
    """Return the operators of a prepared subnet by name, in their order."""
    found = {}
    for node in onnx.load(prepared, load_external_data=False).graph.node:
        names = (node.name.partition("_nchwc")[0], *node.output)
        layer = next((network.producer[name] for name in names if name in network.producer), "")
        is_conversion = node.op_type in CONVERSIONS
        found[node.name] = Operator(node.op_type, "" if is_conversion else layer or node.name)
    return found


@dataclass(slots=True)
class Measured:
    """A loaded subnet, and what its runs took."""

    name: str
    layers: frozenset[str]
    subnet: LoadedSubnet
    profiled: Profiled
    run_s: list[float] = field(default_factory=list)
    again_s: list[float] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute a frame, timed."""
        faults, began_s = _faults(), time.thread_time()
        outputs = self.subnet.run(inputs)
        self.run_s.append(time.thread_time() - began_s)
        self.faults.append(_faults() - faults)
        return outputs

    def run_again(self, inputs: Mapping[str, Array]) -> None:
        """Compute the frame several times in a row, and note the times of all but the first."""
        for number in range(IN_A_ROW):
            began_s = time.thread_time()
            self.subnet.run(inputs)
            if number:
                self.again_s.append(time.thread_time() - began_s)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


@dataclass(frozen=True, slots=True)
class Costs:
    """One phase: seconds per frame, except for counts. `whole_s` is what its layers take in the
    whole network; that, `conversions_s`, `unfused_s`, `kernels_s` and `session_s` add up to
    `run_s`."""

    phase: str
    device: str
    whole_s: float
    conversions_s: float
    conversions: int
    unfused_s: float
    unfused: tuple[str, ...]
    kernels_s: float
    session_s: float
    run_s: float
    again_s: float
    faults: float
    wire_s: float
    cut_bytes: int


def planned(name: str, strategy: str, count: int) -> tuple[cnn.Model, Plan]:
    """The saved plan `name`, or the network `name` divided over `count` accelerators."""
    if is_plan(Path(name)):
        saved = read_plan(Path(name))
        model = cnn.read(saved.model).rewritten(saved.rewrites)
        devices = tuple(Device(node, wire_is_free=True) for node in saved.nodes)
        plan = make_plan(
            model.network, model.digest, devices, saved.assignment,
            strategy=saved.strategy, explanation="", rewrites=saved.rewrites,
        )  # fmt: skip
        return model, plan
    model = cnn.read(name)
    devices = tuple(Device(f"node{number + 1}", wire_is_free=True) for number in range(count))
    problem = Problem(model.network, devices, model=model)
    solution = find_strategy(strategy).solve(problem)
    plan = plan_solution(problem, solution, strategy)
    return model.rewritten(solution.rewrites), plan


def measure(model: cnn.Model, plan: Plan, turns: int, place: Path) -> tuple[list[Costs], Costs]:
    """The costs of all phases, and those of the whole network."""
    network, cache = model.network, place / "cache"
    executor = open_executor("onnxruntime", cache)
    everything = tuple(layer.name for layer in network.layers)
    wanted = [("whole", everything, network.inputs, network.outputs)]
    wanted += [(each.name, each.layers, each.inputs, each.outputs) for each in plan.phases]
    cuts = [model.cut(layers, given, made, place) for _, layers, given, made in wanted]
    executor.prepare([cut.graph for cut in cuts], OPTIONS)
    measured = []
    for (name, layers, _, _), cut in zip(wanted, cuts, strict=True):
        (prepared,) = cache.glob(f"onnxruntime-{inspect(cut.graph).digest}-*/{MODEL}")
        profiled = Profiled(prepared, network, place)
        subnet = executor.load(cut.graph, OPTIONS)
        measured.append(Measured(name, frozenset(layers), subnet, profiled))
    whole, phases = measured[0], measured[1:]
    given = frame(whole.subnet)
    with Loopback("tcp://127.0.0.1:0") as loopback:
        wire = _wire_costs(phases[:3], loopback)
    for _ in range(WARM_UP + turns):
        whole.run(given)
        tensors = dict(given)
        for phase in phases:
            tensors.update(phase.run({name: tensors[name] for name in phase.subnet.inputs}))
        whole.profiled.run(given)
        for phase in phases:
            phase.profiled.run({name: tensors[name] for name in phase.subnet.inputs})
    for _ in range(2):
        for each in measured:
            each.run_again({name: tensors[name] for name in each.subnet.inputs})
    executor.close()
    return _taken_apart(network, plan, whole, phases, wire)


def _wire_costs(phases: Sequence[Measured], loopback: Loopback) -> WireCosts:
    rehearsal = Rehearsal(loopback)
    rehearsed = [
        RehearsedPhase(
            each.subnet, partial(frame, each.subnet), [*each.subnet.inputs], [*each.subnet.outputs]
        )
        for each in phases
    ]
    for _ in rehearsal.perform(rehearsed):
        pass
    return rehearsal.costs()


def _taken_apart(
    network: Network,
    plan: Plan,
    whole: Measured,
    phases: Sequence[Measured],
    wire: WireCosts,
) -> tuple[list[Costs], Costs]:
    took_s, own = whole.profiled.seconds(), whole.profiled.operators
    alone = {operator.layer for operator in own.values()}
    """Layers that begin an operator of the whole network: all others are a part of one."""
    layer_s: dict[str, float] = {}
    for name, one_s in took_s.items():
        layer_s[own[name].layer] = layer_s.get(own[name].layer, 0.0) + one_s
    cut = cut_bytes(convert(network, plan.assignment, plan.dealing))
    devices = {phase.name: phase.device for phase in plan.phases}
    found = []
    for phase in (*phases, whole):
        seconds = took_s if phase is whole else phase.profiled.seconds()
        operators = phase.profiled.operators
        conversions = [n for n, each in operators.items() if each.kind in CONVERSIONS]
        unfused = [n for n, each in operators.items() if each.layer and each.layer not in alone]
        run_s = min(phase.run_s[WARM_UP:])
        whole_s = sum(layer_s.get(layer, 0.0) for layer in phase.layers)
        conversions_s = sum(seconds[name] for name in conversions)
        unfused_s = sum(seconds[name] for name in unfused)
        found.append(
            Costs(
                phase=phase.name,
                device=devices.get(phase.name, ""),
                whole_s=whole_s,
                conversions_s=conversions_s,
                conversions=len(conversions),
                unfused_s=unfused_s,
                unfused=tuple(operators[name].kind for name in unfused),
                kernels_s=sum(seconds.values()) - conversions_s - unfused_s - whole_s,
                session_s=run_s - sum(seconds.values()),
                run_s=run_s,
                again_s=min(phase.again_s),
                faults=min(phase.faults[WARM_UP:]),
                wire_s=_wire_s(plan, phase.name, wire),
                cut_bytes=cut.get(phase.name, 0),
            )
        )
    return found[:-1], found[-1]


def _wire_s(plan: Plan, phase: str, wire: WireCosts) -> float:
    """Half of what each tensor costs that crosses between devices, at both of its ends."""
    crossing = [
        channel
        for channel in plan.channels
        if not channel.is_local and HOST not in (channel.source_device, channel.target_device)
    ]
    ends = [c for c in crossing if c.source == phase] + [
        c for c in crossing if c.targets[0] == phase
    ]
    size = sum(channel.tensor.bytes for channel in ends)
    messages = 1 + MORE * (len(ends) - 1) if ends else 0.0
    return (messages * wire.message_s + size * wire.byte_s) / 2


def summed(costs: Sequence[Costs], key: str) -> float:
    """One figure over all phases."""
    return float(sum(getattr(each, key) for each in costs))


def as_report(
    name: str, plan: Plan, alone_s: float, costs: Sequence[Costs], whole: Costs, turns: int
) -> dict[str, Any]:
    """As `benchmarks.report` wants it: costs as shares of the whole network's frame.

    `alone_s` is what the cost model prices that frame at, on one device.
    """
    one = whole.run_s
    parts = {
        "conversions": summed(costs, "conversions_s") - whole.conversions_s,
        "unfused operators": summed(costs, "unfused_s"),
        "kernels": summed(costs, "kernels_s"),
        "sessions": summed(costs, "session_s") - whole.session_s,
    }
    busiest: dict[str, float] = {}
    for each in costs:
        busiest[each.device] = busiest.get(each.device, 0.0) + each.run_s
    fair = one / len(plan.devices)
    usual = plan.devices[0]
    faster = alone_s / one
    priced_cut, priced_firing = usual.cut_s_per_byte / faster * 1e9, usual.firing_s / faster * 1e6
    beyond_s = summed(costs, "run_s") - one
    border_s = parts["conversions"] + parts["unfused operators"] + parts["kernels"]
    cut = sum(each.cut_bytes for each in costs)
    figures = [
        Figure("all phases ÷ the whole network", round(1 + beyond_s / one, 4)),
        *(_share(what, seconds, one) for what, seconds in parts.items()),
        _share("phases in a row", summed(costs, "again_s"), one),
        Figure("busiest device ÷ fair share", round(max(busiest.values()) / fair, 3)),
        Figure("page faults per frame", summed(costs, "faults"), note=f"whole: {whole.faults:g}"),
        _share("wire, this end", summed(costs, "wire_s"), one),
        Figure("operators beyond the whole's", round(border_s / max(cut, 1) * 1e9, 3),
               "ns per cut byte", note=f"priced {priced_cut:.3f} at the speed measured"),
        Figure("sessions", round(1e6 * parts["sessions"] / len(costs), 1), "µs per firing",
               note=f"priced {priced_firing:.0f} at the speed measured, messages included"),
    ]  # fmt: skip
    rows = [_row(each) for each in (*costs, whole)]
    return report(
        "phase_costs",
        f"What the phases of {name} cost beyond their layers",
        figures,
        settings={"strategy": plan.strategy, "devices": len(plan.devices), "turns": turns,
                  "phases": len(costs), "MB per frame": round(plan.bytes_per_frame / 1e6, 1)},
        notes=["Processor time of one thread and the engine's own profile; lower "
               "quartiles of turns in which the whole network and all phases take part."],
        tables=[Table("Phases, ms", COLUMNS, tuple(rows))],
        data={"phases": [asdict(each) for each in costs], "whole": asdict(whole)},
    )  # fmt: skip


def _share(what: str, seconds: float, whole_s: float) -> Figure:
    return Figure(what, round(100 * seconds / whole_s, 2), "% of a frame")


COLUMNS = (
    "phase", "in the whole", "conversions", "unfused", "kernels", "session", "run", "÷ whole",
    "again", "faults", "wire", "cut MB",
)  # fmt: skip


def _row(each: Costs) -> tuple[str, ...]:
    share = each.run_s / each.whole_s if each.whole_s else float("nan")
    return (
        each.phase,
        f"{1e3 * each.whole_s:.2f}",
        f"{1e3 * each.conversions_s:.2f} ({each.conversions})",
        f"{1e3 * each.unfused_s:.2f} ({len(each.unfused)})",
        f"{1e3 * each.kernels_s:+.2f}",
        f"{1e3 * each.session_s:.2f}",
        f"{1e3 * each.run_s:.2f}",
        f"{share:.2f}",
        f"{1e3 * each.again_s:.2f}",
        f"{each.faults:.0f}",
        f"{1e3 * each.wire_s:.2f}",
        f"{each.cut_bytes / 1e6:.2f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="onnx-wheel:resnet50", metavar="NET | PLAN")
    parser.add_argument("--strategy", default="vertical")
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    model, plan = planned(options.name, options.strategy, options.devices)
    with tempfile.TemporaryDirectory(prefix="phase-costs-") as place:
        costs, whole = measure(model, plan, options.turns, Path(place))
    alone_s = float(layer_seconds(model.network, plan.devices)[:, 0].sum())
    found = as_report(options.name, plan, alone_s, costs, whole, options.turns)
    if options.json:
        print_json(found)
        return 0
    for line in (COLUMNS, *found["tables"][0]["rows"]):
        print(
            "  ".join(
                f"{text:>{max(9, len(head))}}" for head, text in zip(COLUMNS, line, strict=True)
            )
        )
    for row in found["rows"]:
        print(f"{row['what']}: {row['measured']} {row.get('unit', '')} {row.get('note', '')}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
