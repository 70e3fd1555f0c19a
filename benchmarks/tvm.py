"""Times whole networks with ONNX Runtime and with TVM, untuned and tuned, on one thread.

`python -m benchmarks.tvm NETWORK... [--tuning-s SECONDS]`; networks are ONNX files. The engines run
in turns. A network whose untuned run takes long is run less often.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from nodes.executors.base import LoadedSubnet, LoadOptions
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.executors.tvm.executor import TvmExecutor

_ROUNDS = 9
_LONGEST_S = 20.0


def run_ms(subnets: list[LoadedSubnet]) -> list[float]:
    """Return each subnet's median time per run."""
    inputs = {n: synthetic_input(s.dtype, s.shape) for n, s in subnets[0].inputs.items()}
    times: list[list[float]] = [[] for _ in subnets]
    begin = time.perf_counter()
    while len(times[0]) < _ROUNDS and (not times[0] or time.perf_counter() - begin < _LONGEST_S):
        for subnet, taken in zip(subnets, times, strict=True):
            subnet.run(inputs)
            start = time.perf_counter()
            subnet.run(inputs)
            taken.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(taken) for taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--tuning-s", type=float, default=30.0)
    arguments = parser.parse_args()
    tuned = LoadOptions(engine_options={"tuning_s": str(arguments.tuning_s)})
    print("| network | ONNX Runtime, ms | TVM, ms | TVM tuned, ms | compiling, s | tuning, s |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        onnx_runtime = OnnxRuntimeExecutor(Path(folder, "onnx"))
        tvm = TvmExecutor(Path(folder, "tvm"))
        for network in arguments.networks:
            subnets: list[LoadedSubnet] = [onnx_runtime.load(network, LoadOptions())]
            took_s = []
            for options in (LoadOptions(), tuned):
                begin = time.perf_counter()
                subnets.append(tvm.load(network, options))
                took_s.append(time.perf_counter() - begin)
            row = [f"{each:.2f}" for each in run_ms(subnets)]
            row += [f"{each:.1f}" for each in took_s]
            print(f"| {network.stem} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
