"""Measures what `launch --trace` costs, and reports how much communication computing hides:

    python -m benchmarks.trace [--devices 3] [--frames 40] [--repetitions 3] [--json]

The same plan runs on emulated accelerator boards (`benchmarks.lab`), alternately with a trace and
without. The report gives the rates once the pipeline is full. From the traces it gives, for each
node, the share of the time with tensors under way to or from it during which it computed, and the
apparent difference of the boards' clocks, which are one and the same here. It needs root.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.turns import OneFrame
from benchmarks.report import Figure, print_json, report
from benchmarks.trace_overlap import overlaps
from benchmarks.undisturbed import undisturbed
from launcher.config.load import load_cluster
from launcher.errors import LauncherError
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model, run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_file
from launcher.progress import open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from nodes.execution.trace import Recorder
from nodes.protocol.messages import TRACE_EVENT, TRACE_EVENTS, TraceKind


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Rates with and without, overlap by node, offsets of clocks."""
    config = LabConfig(
        name="traced",
        undisturbed=True,
        defaults=BoardConfig(cpu=options.cpu, link=125e6),
        devices=(DeviceConfig(count=options.devices),),
        cluster={"model": options.model, "strategy": options.strategy},
    )
    rates: dict[str, list[float]] = {"on": [], "off": []}
    traces: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="trace-") as place,
        open_progress() as progress,
        Lab(config) as lab,
    ):
        folder = Path(place)
        cluster = load_cluster(lab.cluster_file)
        model = read_model(cluster)
        plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
        subnets = cut_subnets(model, plan, folder / "subnets", lambda _, __: None)
        network = model.network
        inputs = {
            name: np.zeros(network.tensors[name].shape, network.tensors[name].dtype)
            for name in network.inputs
        }
        frames = OneFrame(inputs, options.frames)
        skipped = 2 * options.devices
        for number in range(options.repetitions):
            for kind in ("off", "on") if number % 2 == 0 else ("on", "off"):
                trace = folder / "trace.json" if kind == "on" else None
                chosen = replace(run_options(cluster), trace=trace)
                result = run(
                    plan, nodes_of(cluster), subnets, listed(frames, lambda _, __: None),
                    lambda _: None, chosen,
                )  # fmt: skip
                came = result.received_s
                rates[kind].append((len(came) - skipped - 1) / (came[-1] - came[skipped]))
                if trace is not None:
                    traces.append(json.loads(trace.read_text("utf-8")))
    shares = [{node: one.share for node, one in overlaps(trace).items()} for trace in traces]
    clocks = [list(trace["otherData"].values()) for trace in traces]
    return {
        "rates": rates,
        "overlap": shares,
        "clock_ahead_s": [[one["clock_ahead_s"] for one in each] for each in clocks],
        "clock_error_s": [[one["clock_error_s"] for one in each] for each in clocks],
        "dropped": sum(one["events_dropped"] for each in clocks for one in each),
        "note_s": note_s(),
    }


def note_s() -> float:
    """Seconds to note one event: the quickest of some rounds."""
    recorder, took = Recorder(), []
    for _ in range(5):
        began_s = time.perf_counter()
        for frame in range(TRACE_EVENTS // 2):
            recorder.note(TraceKind.FIRED, 1, frame, 1.0, 1.0)
        took.append((time.perf_counter() - began_s) / (TRACE_EVENTS // 2))
        recorder.answer(1, 0.0)
    return min(took)


def figures(found: dict[str, Any]) -> list[Figure]:
    """Told as `benchmarks.report` does."""
    on, off = found["rates"]["on"], found["rates"]["off"]
    lost = [100 * (1 - a / b) for a, b in zip(on, off, strict=True)]
    shares = [share for one in found["overlap"] for share in one.values()]
    ahead = [abs(value) for each in found["clock_ahead_s"] for value in each]
    return [
        Figure("rate without a trace", statistics.median(off), "frames/s",
               low=min(off), high=max(off)),
        Figure("what a trace takes of it", statistics.median(lost), "%", at_most=2.0,
               low=min(lost), high=max(lost)),
        Figure("noting an event", 1e6 * found["note_s"], "µs"),
        Figure("an event in the buffer", struct.calcsize(TRACE_EVENT), "bytes"),
        Figure("events that had no room", found["dropped"], at_most=0),
        Figure("of the time in which tensors are under way to or from a node, it computes",
               100 * statistics.median(shares), "%", low=100 * min(shares), high=100 * max(shares)),
        Figure("clocks that are the same seem apart", 1e3 * statistics.median(ahead), "ms",
               low=1e3 * min(ahead), high=1e3 * max(ahead)),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--strategy", default="sequential")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    try:
        machine.require()
        with undisturbed():
            found = measure(options)
    except LauncherError as error:
        print(f"trace: {error}", file=sys.stderr)
        return error.exit_code
    listed = figures(found)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        title = "Traces: what they cost, and how much communication computing hides"
        notes = [
            "The same plan with a trace and without, in turn; shares are of each node and run."
        ]
        print_json(report("trace", title, listed, settings=settings, notes=notes, data=found))
    else:
        for one in listed:
            asked = "" if one.holds is None else f"  ({'holds' if one.holds else 'DOES NOT HOLD'})"
            print(f"{one.what}: {one.measured:.3g} ({one.low} to {one.high}) {one.unit}{asked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
