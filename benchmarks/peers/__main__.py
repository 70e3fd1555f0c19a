"""Compares rate, latency, CPU time and memory of csdf-edge and alternatives on the same boards:

    python -m benchmarks.peers [--model onnx-wheel:resnet50] [--devices 3] [--board cpu]
                               [--repetitions 3] [--seconds 15] [--json]

A plan of `sequential`, which is a chain of one part per board, is run by

- **csdf-edge**: the shipped agents and `launch`'s own run;
- **pyzmq script**: PULL, compute, PUSH, as one would write it in an afternoon
  (`benchmarks/peers/stages/zmq_stage.py`), queues bounded by high-water marks;
- **torch pipelining**: `torch.distributed.pipelining` over gloo (`ScheduleGPipe`, forward only, one
  frame a microbatch), whose stages call the same ONNX Runtime, so that transport and schedule are
  compared and not two engines' convolutions;
- **one ONNX Runtime**: the whole network on one of the boards, without any network.

They take turns, in another order each time, on the same emulated boards (`benchmarks.lab`): the
same quota, the same links, the same frame, results compared with those of the whole network. The
others load their parts as one does without thinking about memory. The report gives frames per
second between results once the pipeline is full; latency then, with as many frames under way as the
runtime accepts; CPU time per frame of the boards' processes; and for the process on the board that
needs most memory, the peak of its resident memory since its start and of memory that no file backs.

Where other processes use the machine, a runtime with more frames under way loses less: the script's
queues are bounded in messages and continue in the kernel's buffers, ours hold what the plan says.
Read rates together with latencies.

torch is no dependency of this project. It is used where an interpreter has it:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch onnxruntime numpy
    TORCH_PYTHON=/tmp/torch/bin/python python -m benchmarks.peers

and omitted where none does, which the report states. Emulated boards need root.
"""

from __future__ import annotations

import os
import sys

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig
from benchmarks.peers.compare import compare, figures
from benchmarks.peers.others import torch_version
from benchmarks.report import arguments, report, show
from benchmarks.undisturbed import undisturbed
from launcher.errors import LauncherError

CORES = 0.2
"""Of each board."""


def main() -> int:
    parser = arguments("benchmarks.peers", __doc__)
    add = parser.add_argument
    add("--model", default="onnx-wheel:resnet50")
    add("--devices", type=int, default=3)
    add("--board", choices=("cpu", "accelerator"), default="cpu")
    add("--repetitions", type=int, default=3)
    add("--seconds", type=float, default=15.0, help="of each turn")
    add("--torch-python", default=os.environ.get("TORCH_PYTHON", sys.executable),
        help="a Python that has torch; $TORCH_PYTHON if not given, or else this one")  # fmt: skip
    chosen = parser.parse_args()
    ort.set_default_logger_severity(4)
    torch = torch_version(chosen.torch_python)
    config = LabConfig(
        name="peers",
        undisturbed=True,
        defaults=BoardConfig(board=chosen.board, cpu=CORES, link=125e6),
        devices=(DeviceConfig(count=chosen.devices),),
        cluster={"model": chosen.model, "strategy": "sequential"},
    )
    python = None if torch is None else chosen.torch_python
    try:
        with undisturbed() as how, Lab(config) as lab:
            found = compare(lab, chosen.repetitions, chosen.seconds, python)
    except LauncherError as error:
        print(f"peers: {error}", file=sys.stderr)
        return error.exit_code
    worst = max(turn.difference for turns in found.turns.values() for turn in turns)
    keys = ("model", "devices", "board", "repetitions", "seconds")
    data = report(
        "peers",
        f"Side by side with pyzmq, torch and one ONNX Runtime: {chosen.model} on "
        f"{chosen.devices} {'CPU' if chosen.board == 'cpu' else chosen.board} boards",
        figures(found.turns),
        settings={key: getattr(chosen, key) for key in keys}
        | {"cores of a board": CORES, "torch": torch, "priority": how},
        notes=[
            f"A chain of {len(found.plan.phases)} stages, {found.plan.bytes_per_frame / 1e6:.1f} "
            "MB per frame; what is asked of ours is to be no worse than the best of the others.",
            f"torch {torch}." if torch else "torch left out: no Python here has it.",
            f"Largest relative difference of any result from the whole network's: {worst:.1e}.",
        ],
    )
    show(data, as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
