"""What streaming from a source costs: frames per second of a stream and of a run over files.

    python -m benchmarks.stream_rate [--model onnx-wheel:squeezenet] [--nodes 3] [--frames 300]

In each round, `launch` runs the network on random frames and then streams as many frames from a
source to a sink that forgets them, each with agents of its own; the ratio of the two rates counts,
and the median is reported.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from benchmarks.report import print_json
from cnn.model import Model
from launcher.config.load import Cluster
from launcher.progress import ProgressDisplay, open_progress
from launcher.run import job
from launcher.run.request import Request
from launcher.sinks.base import FrameResult, SinkConfig
from launcher.sources.base import SourceFrame
from launcher.streaming.opening import Ends
from launcher.streaming.report import StreamReport
from launcher.streaming.running import stream
from launcher.tasks.opening import open_task


class Repeated:
    """A source that gives one frame again and again."""

    description = "one frame"
    is_live = False

    def __init__(self, model: Model, frames: int) -> None:
        draw = np.random.default_rng(0)
        tensors = [model.network.tensors[name] for name in model.network.inputs]
        self._frame = {t.name: draw.random(t.shape).astype(t.dtype) for t in tensors}
        self._frames = frames

    def frames(self) -> Iterator[SourceFrame]:
        """Give as many frames as were asked for."""
        for _ in range(self._frames):
            yield SourceFrame(self._frame, 0.0)

    def close(self) -> None:
        """Nothing is open."""


class Forget:
    """A sink that forgets."""

    description = "nothing"
    needs_image = False

    def write(self, _: FrameResult) -> None:
        """Forget a result."""

    def close(self) -> None:
        """Nothing is open."""


class ForgetConfig(SinkConfig):
    """The keys of a sink that forgets."""

    kind: ClassVar[str] = "forget"

    def open(self, _: Path) -> Forget:
        """Return the sink."""
        return Forget()


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="onnx-wheel:squeezenet")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--frames", type=int, default=300, help="in each run")
    parser.add_argument("--rounds", type=int, default=5)
    print_json(measured(parser.parse_args()))


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The median rates, their ratio, and the stream's latency."""
    with tempfile.TemporaryDirectory() as folder, open_progress() as progress:
        target = Path(folder) / "cluster.yaml"
        nodes = "".join(f"  - {{name: n{number}}}\n" for number in range(given.nodes))
        target.write_text(
            f"model: {given.model}\nstrategy: sequential\nverify: false\n"
            f"recovery: {{adapt: false}}\nnodes:\n{nodes}"
        )
        request = Request(target, frames=given.frames)
        pairs = []
        for _ in range(given.rounds):
            ran = job.launch(request, progress, started_s=time.monotonic()).report
            if ran is None:
                raise RuntimeError("the run has no report")
            pairs.append((ran.frames_per_second, streamed(request, progress, given.frames)))
    return {
        "model": given.model,
        "nodes": given.nodes,
        "in_flight": pairs[0][1].in_flight,
        "files_frames_per_s": statistics.median(files for files, _ in pairs),
        "stream_frames_per_s": statistics.median(each.frames_per_second for _, each in pairs),
        "ratio": statistics.median(each.frames_per_second / files for files, each in pairs),
        "ratios": [round(each.frames_per_second / files, 3) for files, each in pairs],
    }


def streamed(request: Request, progress: ProgressDisplay, frames: int) -> StreamReport:
    """Stream so many frames."""

    def ends(_: Request, cluster: Cluster, model: Model) -> Ends:
        return Ends(
            Repeated(model, frames), open_task(cluster, model), [(ForgetConfig(), Forget())]
        )

    return stream(request, progress, loaded=job.load_target(request), open_ends=ends)


if __name__ == "__main__":
    main()
