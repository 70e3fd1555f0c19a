"""Measures the memory of loaded subnets and the time of loading, for the memory model's constants.

    python -m benchmarks.executor_memory [--networks resnet50 …] [--runs 15] [--json]

Three tables, every row measured in a process of its own that has imported what an agent imports:

1. a whole network loaded in several ways: resident memory, of it anonymous and file-backed, the
   peak, and the CPU time of a frame with one thread (the least of all runs, rounds of the ways
   in alternation);
2. a network cut into more and more subnets, all loaded in one process and run in turn, beside what
   `partition.pricing.memory_budget` and `partition.prediction.memory.live_bytes` predict of it;
3. many equal subnets without weights, for the cost of a session itself, and the time by which a
   run of the smallest subnet exceeds ONNX Runtime's own `session.run`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodes.host.usage import usage

MODES = ("default", "external", "no prepacking", "executor")
"""default: all in one file, as users load models. external: weights in a file beside it.
no prepacking: that, and kernels must not repack weights. executor: nodes.executors."""

CUTS = (1, 4, 12, 40, 120)
SESSIONS = 100
MEGA = 1e6


@dataclass(frozen=True)
class Held:
    """Bytes of this process, without the pages of programs and libraries (`nodes.host.usage`):
    resident, of it anonymous, and the most there ever was."""

    rss: int
    anonymous: int
    peak: int

    @property
    def file_backed(self) -> int:
        return self.rss - self.anonymous


def held() -> Held:
    now = usage()
    return Held(now.rss_bytes, now.anonymous_bytes, now.rss_peak_bytes)


# ------------------------------------------------------------------------------ in the child


def import_what_an_agent_imports() -> None:
    import nodes.cli  # noqa: F401, PLC0415
    from nodes.executors.onnx.sessions import import_onnxruntime  # noqa: PLC0415

    import_onnxruntime()


def child_whole(mode: str, model: str, runs: int, cache: str) -> dict[str, Any]:
    """Load `model` (a file) by `mode` and run it."""
    import_what_an_agent_imports()
    run, idle = _load_whole(mode, Path(model), Path(cache))
    run()
    seconds = []
    for _ in range(runs):
        start_s = time.process_time()
        run()
        seconds.append(time.process_time() - start_s)
    return {"idle": asdict(idle), "held": asdict(held()), "seconds": min(seconds)}


def _load_whole(mode: str, model: Path, cache: Path) -> tuple[Callable[[], object], Held]:
    import numpy as np  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    from nodes.executors.base import LoadOptions  # noqa: PLC0415
    from nodes.executors.registry import open_executor  # noqa: PLC0415

    if mode == "executor":
        executor = open_executor("onnxruntime", cache)
        idle = held()
        subnet = executor.load(model, LoadOptions())
        inputs = {name: np.zeros(spec.shape, spec.dtype) for name, spec in subnet.inputs.items()}
        return lambda: subnet.run(inputs), idle
    idle = held()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if mode == "no prepacking":
        options.add_session_config_entry("session.disable_prepacking", "1")
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feed = {
        argument.name: np.zeros(argument.shape, np.float32) for argument in session.get_inputs()
    }
    return lambda: session.run(None, feed), idle


def child_subnets(graphs: list[str], rounds: int, cache: str) -> dict[str, Any]:
    """Load all `graphs`, run them in turn, each for itself, keeping nothing between runs."""
    import_what_an_agent_imports()
    import numpy as np  # noqa: PLC0415

    from nodes.executors.base import LoadOptions  # noqa: PLC0415
    from nodes.executors.registry import open_executor  # noqa: PLC0415

    executor = open_executor("onnxruntime", Path(cache))
    options = LoadOptions()
    executor.prepare([Path(graph) for graph in graphs], options)
    idle = held()
    start_s = time.perf_counter()
    subnets = [executor.load(Path(graph), options) for graph in graphs]
    load_s = time.perf_counter() - start_s
    loaded = held()
    for _ in range(rounds + 1):
        for subnet in subnets:
            subnet.run(
                {name: np.zeros(spec.shape, spec.dtype) for name, spec in subnet.inputs.items()}
            )
    return {
        "idle": asdict(idle), "loaded": asdict(loaded), "held": asdict(held()), "load_s": load_s,
    }  # fmt: skip


def child_overhead(graph: str, runs: int, cache: str) -> dict[str, Any]:
    """Seconds of one run of a tiny subnet: by the executor, and by `session.run` itself."""
    import numpy as np  # noqa: PLC0415
    import onnxruntime  # noqa: PLC0415

    from nodes.executors.base import LoadOptions  # noqa: PLC0415
    from nodes.executors.registry import open_executor  # noqa: PLC0415

    subnet = open_executor("onnxruntime", Path(cache)).load(Path(graph), LoadOptions())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    feed = {name: np.zeros(spec.shape, spec.dtype) for name, spec in subnet.inputs.items()}

    def seconds(run: Callable[[], object]) -> float:
        start_s = time.process_time()
        for _ in range(runs):
            run()
        return (time.process_time() - start_s) / runs

    ours, plain = [], []
    for _ in range(9):
        ours.append(seconds(lambda: subnet.run(feed)))
        plain.append(seconds(lambda: session.run(None, feed)))
    return {"executor_s": min(ours), "session_s": min(plain)}


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {
    "whole": child_whole,
    "subnets": child_subnets,
    "overhead": child_overhead,
}


# ------------------------------------------------------------------------------ in the parent


def ask_child(what: str, **arguments: Any) -> dict[str, Any]:
    """Run one of CHILDREN in a fresh process."""
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.executor_memory", "--child", what],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"the measuring process failed:\n{ran.stderr}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def whole_network(name: str, runs: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Table 1 for one network."""
    import onnx  # noqa: PLC0415

    from cnn import read  # noqa: PLC0415

    model = read(f"onnx-wheel:{name}")
    network = model.network
    layers = [layer.name for layer in network.layers]
    graph = model.cut(layers, network.inputs, network.outputs, folder).graph
    inline = folder / "inline.onnx"
    onnx.save(onnx.load(graph), inline)
    weights = network.weight_bytes(layers)
    del model, network
    cache = folder / "derived"
    ask_child("whole", mode="executor", model=str(graph), runs=1, cache=str(cache))  # optimise
    rounds = {mode: [] for mode in MODES}
    for _ in range(3):
        for mode in MODES:
            file = inline if mode == "default" else graph
            rounds[mode].append(
                ask_child("whole", mode=mode, model=str(file), runs=runs, cache=str(cache))
            )
    for mode, answers in rounds.items():
        yield {
            "network": name,
            "mode": mode,
            "weights": weights,
            "idle": round(statistics.median(a["idle"]["rss"] for a in answers)),
            "rss": round(statistics.median(a["held"]["rss"] for a in answers)),
            "anonymous": round(statistics.median(a["held"]["anonymous"] for a in answers)),
            "peak": round(statistics.median(a["held"]["peak"] for a in answers)),
            "ms": min(a["seconds"] for a in answers) * 1e3,
        }


def cut_network(name: str, cuts: Sequence[int], folder: Path) -> Iterator[dict[str, Any]]:
    """Table 2 for one network: contiguous cuts in topological order."""
    from cnn import read  # noqa: PLC0415
    from csdf.conversion.from_network import convert  # noqa: PLC0415
    from partition.prediction.memory import live_bytes  # noqa: PLC0415
    from partition.pricing.memory_budget import engine_bytes  # noqa: PLC0415

    model = read(f"onnx-wheel:{name}")
    network = model.network
    count = len(network.layers)
    for parts in cuts:
        if parts > count:
            continue
        partition = {
            layer.name: f"d{index * parts // count}" for index, layer in enumerate(network.layers)
        }
        phases = convert(network, partition).phases
        subnets = [model.cut(p.layers, p.inputs, p.outputs, folder / str(parts)) for p in phases]
        answer = ask_child(
            "subnets",
            graphs=[str(subnet.graph) for subnet in subnets],
            rounds=3,
            cache=str(folder / str(parts) / "derived"),
        )
        weights = network.weight_bytes(partition)
        activations = max(live_bytes(network, phase) for phase in phases)
        # No frame outlives its run here, so channels are one phase's own inputs and outputs.
        channels = max(
            sum(network.tensors[tensor].bytes for tensor in (*phase.inputs, *phase.outputs))
            for phase in phases
        )
        engine = engine_bytes(len(phases))
        yield {
            "network": name,
            "phases": len(phases),
            "load_s": answer["load_s"],
            "idle": answer["idle"]["rss"],
            "anonymous_loading": answer["loaded"]["anonymous"] - answer["idle"]["anonymous"],
            "anonymous_running": answer["held"]["anonymous"] - answer["loaded"]["anonymous"],
            "rss": answer["held"]["rss"],
            "weights": weights,
            "activations": activations,
            "channels": channels,
            "engine": engine,
            "predicted": weights + activations + channels + engine,
        }


def sessions(folder: Path) -> dict[str, Any]:
    """Table 3."""
    from onnx import TensorProto, helper, save  # noqa: PLC0415

    graphs = []
    for index in range(SESSIONS):
        value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8]) for n in "xy"]
        nodes = [helper.make_node("Relu", ["x"], ["y"])]
        graph = helper.make_graph(nodes, f"tiny{index}", value[:1], value[1:])
        path = folder / f"tiny{index}.onnx"
        opset = helper.make_opsetid("", 17)
        save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
        graphs.append(str(path))
    cache = str(folder / "derived")
    one = ask_child("subnets", graphs=graphs[:1], rounds=1, cache=cache)
    many = ask_child("subnets", graphs=graphs, rounds=1, cache=cache)
    overhead = ask_child("overhead", graph=graphs[0], runs=2000, cache=cache)
    more = SESSIONS - 1
    return {
        "idle": one["idle"]["rss"],
        "first_session": one["held"]["rss"] - one["idle"]["rss"],
        "next_session": (many["held"]["rss"] - one["held"]["rss"]) / more,
        "next_session_load_s": (many["load_s"] - one["load_s"]) / more,
        "run_s": overhead["executor_s"],
        "session_run_s": overhead["session_s"],
    }


def mb(size: float) -> str:
    return f"{size / MEGA:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", default=["resnet50"], help="of the onnx wheel")
    parser.add_argument("--cuts", nargs="+", type=int, default=list(CUTS), metavar="N")
    parser.add_argument("--runs", type=int, default=15, help="frames per loading mode and round")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(CHILDREN[given.child](**json.loads(sys.stdin.read()))), flush=True)
        os._exit(0)
    say = (lambda *_: None) if given.json else print
    result: dict[str, Any] = {"whole": [], "cut": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        say(
            "MB"
            + " " * 12
            + "mode          weights     idle      rss     anon     file     peak     ms"
        )
        for name in given.networks:
            for row in whole_network(name, given.runs, folder / name):
                result["whole"].append(row)
                numbers = (row["weights"], row["idle"], row["rss"], row["anonymous"],
                           row["rss"] - row["anonymous"], row["peak"])  # fmt: skip
                say(f"{name:13} {row['mode']:13}", *map(mb, numbers), f"{row['ms']:6.1f}")
        say(
            "\nMB" + " " * 11 + "phases load s     idle +load.an  +run.an  weights activat."
            " channels   engine predictd measured ratio"
        )
        for name in given.networks:
            for row in cut_network(name, given.cuts, folder / name):
                result["cut"].append(row)
                keys = ("idle", "anonymous_loading", "anonymous_running", "weights", "activations",
                        "channels", "engine", "predicted", "rss")  # fmt: skip
                numbers = [mb(row[key]) for key in keys]
                ratio = row["rss"] / row["predicted"]
                say(f"{name:13} {row['phases']:4} {row['load_s']:6.2f}", *numbers, f"{ratio:5.2f}")
        result["sessions"] = table = sessions(folder)
        say(
            f"\nidle agent {mb(table['idle'])} MB, first session {mb(table['first_session'])} MB, "
            f"each further one {table['next_session'] / 1e3:.0f} kB and "
            f"{table['next_session_load_s'] * 1e3:.2f} ms to load; smallest run "
            f"{table['run_s'] * 1e6:.1f} µs, session.run {table['session_run_s'] * 1e6:.1f} µs"
        )
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
