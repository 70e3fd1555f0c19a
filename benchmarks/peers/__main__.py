"""Compares rate, latency, CPU time and memory of csdf-edge and alternatives on the same boards:

    python -m benchmarks.peers [--model onnx-wheel:resnet50] [--devices 3] [--board cpu]
                               [--repetitions 3] [--seconds 15] [--json]

A plan of a contiguous strategy, which is a chain of one part per board, is run by

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
runtime accepts, and of the first frame; CPU time per frame of the boards' processes; and for the
process on the board that needs most memory, the peak of its resident memory since its start and of
memory that no file backs.

Where other processes use the machine, a runtime with more frames under way loses less: the script's
queues are bounded in messages and continue in the kernel's buffers, ours hold what the plan says.
Read rates together with latencies; `--slack` gives ours more room.

torch is no dependency of this project. It is used where an interpreter has it:

    python -m venv /tmp/torch && /tmp/torch/bin/pip install torch onnxruntime numpy
    TORCH_PYTHON=/tmp/torch/bin/python python -m benchmarks.peers

and omitted where none does, which the report states. Emulated boards need root; otherwise boards
are plain processes, which the report states, too.
"""

from __future__ import annotations

import argparse
import os
import sys

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig
from benchmarks.peers.compare import compare
from benchmarks.peers.others import torch_version
from benchmarks.peers.summary import as_report
from benchmarks.report import arguments, show
from benchmarks.undisturbed import undisturbed
from launcher.config.units import parse_link
from launcher.errors import LauncherError


def options() -> argparse.Namespace:
    parser = arguments("benchmarks.peers", __doc__)
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--strategy", default="sequential", help="one that cuts the network")
    parser.add_argument("--board", choices=("cpu", "accelerator"), default="cpu")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--link", type=parse_link, default="1Gbit/s")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument("--hwm", type=int, default=2, help="frames in each of pyzmq's queues")
    parser.add_argument("--slack", type=int, default=1, help="slack_frames of ours")
    parser.add_argument("--microbatches", type=int, default=8, help="frames in a step of torch")
    parser.add_argument(
        "--torch-python",
        default=os.environ.get("TORCH_PYTHON", sys.executable),
        help="a Python that has torch; $TORCH_PYTHON if not given, or else this one",
    )
    parser.add_argument("--plain", action="store_true", help="plain processes, even as root")
    return parser.parse_args()


def main() -> int:
    chosen = options()
    ort.set_default_logger_severity(4)
    torch = torch_version(chosen.torch_python)
    if torch is None:
        print(
            "torch left out: no Python with torch, its gloo and onnxruntime was named "
            "(--torch-python, $TORCH_PYTHON)",
            file=sys.stderr,
        )
    config = LabConfig(
        name="peers",
        undisturbed=True,
        defaults=BoardConfig(board=chosen.board, cpu=chosen.cpu, link=chosen.link),
        devices=(DeviceConfig(count=chosen.devices),),
        cluster={
            "model": chosen.model,
            "strategy": chosen.strategy,
            "slack_frames": chosen.slack,
        },
    )
    try:
        with undisturbed() as how, Lab(config, plain=chosen.plain) as lab:
            found = compare(lab, chosen, torch is not None)
    except LauncherError as error:
        print(f"peers: {error}", file=sys.stderr)
        return error.exit_code
    show(as_report(found, chosen, torch, how), as_json=chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
