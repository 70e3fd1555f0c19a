"""A stage of `torch.distributed.pipelining` over gloo; run by a Python that has torch.

    python -m benchmarks.peers.stages.torch_stage CHAIN RANK RENDEZVOUS MICROBATCHES

A stage's module is the same ONNX Runtime session that everybody has: what differs is torch's
transport and schedule (`ScheduleGPipe`, forward only; one frame is one microbatch). Rank 0 and the
last one compute nothing: the source that feeds frames in and the sink that takes results, both on
the launcher's machine, so that frames and results travel as they do in the others. `CHAIN` lists
the network's parts between them.

For every line `FRAMES SKIPPED` on standard input all ranks run as many steps as that takes. The
sink prints `full` once the skipped results are in; source and sink print when frames passed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
import torch.distributed as dist  # type: ignore[import-not-found, unused-ignore]
from torch.distributed.pipelining import (  # type: ignore[import-not-found, unused-ignore]
    PipelineStage,
    ScheduleGPipe,
)

from benchmarks.comparison import worst_of
from benchmarks.peers.stages.session import (
    Tensors,
    open_session,
    read_frame,
    read_results,
    read_stage,
)


class Session(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """A stage that computes."""

    def __init__(self, graph: Path, inputs: Tensors, outputs: Tensors) -> None:
        super().__init__()
        self._compute = open_session(graph, inputs, outputs)

    def forward(self, *tensors: Any) -> Any:
        outputs = self._compute([tensor.numpy() for tensor in tensors])
        return _packed([torch.from_numpy(array) for array in outputs])


class Gate(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """The source or the sink: passes tensors on unchanged, and calls `passed` with them."""

    def __init__(self, passed: Callable[[tuple[Any, ...]], None]) -> None:
        super().__init__()
        self._passed = passed

    def forward(self, *tensors: Any) -> Any:
        self._passed(tensors)
        return _packed(list(tensors))


class Passed:
    """When frames passed a gate, and at the sink: whether they are right."""

    def __init__(self, wanted: list[Any] | None) -> None:
        self._wanted = wanted
        self.begin(None)

    def begin(self, skipped: int | None) -> None:
        self.times: list[float] = []
        self.worst = 0.0
        self._skipped = skipped

    def __call__(self, tensors: tuple[Any, ...]) -> None:
        self.times.append(time.monotonic())
        if self._wanted is not None:
            if self._skipped is not None and len(self.times) == self._skipped + 1:
                print("full", flush=True)
            results = [tensor.numpy() for tensor in tensors]
            self.worst = max(self.worst, worst_of(zip(results, self._wanted, strict=True)))


def main() -> None:
    chain, rank, rendezvous, microbatches = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    schedule, passed, batch = _schedule(Path(chain), int(rank), rendezvous, int(microbatches))
    schedule.step(*batch)  # connections and buffers are made on the way
    print("ready", flush=True)
    for line in sys.stdin:
        frames, skipped = map(int, line.split())
        passed.begin(skipped)
        for _ in range(frames // int(microbatches)):
            schedule.step(*batch)
        print(json.dumps({"times": passed.times, "difference": passed.worst}), flush=True)
    dist.destroy_process_group()


def _schedule(
    chain: Path, rank: int, rendezvous: str, microbatches: int
) -> tuple[Any, Passed, tuple[Any, ...]]:
    parts = json.loads(chain.read_text("utf-8"))
    last = len(parts) + 1
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=last + 1)
    passed, batch = Passed(read_results(chain.parent) if rank == last else None), ()
    if rank in (0, last):
        tensors = parts[0]["inputs"] if rank == 0 else parts[-1]["outputs"]
        module, inputs, outputs = Gate(passed), tensors, tensors
    else:
        graph, inputs, outputs = read_stage(chain, rank - 1)
        module = Session(graph, inputs, outputs)
    if rank == 0:
        frame = read_frame(chain.parent)
        batch = tuple(torch.from_numpy(np.concatenate([one] * microbatches)) for one in frame)
    stage = PipelineStage(
        module,
        rank,
        last + 1,
        torch.device("cpu"),
        input_args=_empty(inputs),
        output_args=_empty(outputs),
    )
    return ScheduleGPipe(stage, n_microbatches=microbatches), passed, batch


def _empty(tensors: Tensors) -> Any:
    return tuple(torch.empty(*shape, dtype=getattr(torch, dtype)) for _, dtype, shape in tensors)


def _packed(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


if __name__ == "__main__":
    main()
