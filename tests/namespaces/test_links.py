"""Links that nobody described, between agents in network namespaces: the first launch measures."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from launcher.commands.make_keys import make_keys
from launcher.config.load import load_cluster
from launcher.plan.planner import read_planner
from launcher.progress import LineDisplay
from launcher.run.request import Request
from launcher.streaming.job import Outcome, launch
from partition.plan import Plan
from tests.namespaces.lab import PORT, agent_in, namespaces, slowed, why_not

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]

NAMES = ("left", "middle", "right")
SLOW_MBIT = 2.0
SAID = re.compile(r"the slowest link, (\w+) - (\w+), carries ([0-9.]+) kB/s")


def write_wide(path: Path) -> None:
    """Write a chain of convolutions; 128 KiB between two of them, a few bytes in and out."""
    random, nodes, weights, last = np.random.default_rng(1), [], [], "x"
    for number in range(12):
        shape = (32, 2 if number == 0 else 32, 3, 3)
        kernel = random.normal(0, 0.05, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{number}"))
        nodes.append(
            helper.make_node(
                "Conv", [last, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1] * 4
            )
        )
        last = f"c{number}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"], "pool"))
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 1, 1])],
        weights,
    )
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """Three boards; the link of the first has 2 Mbit/s in each direction."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    write_wide(tmp_path / "wide.onnx")
    make_keys(tmp_path / "keys", dict.fromkeys(NAMES))
    text = "model: wide.onnx\nstrategy: sequential\nframes: 12\nnodes:\n"
    with namespaces(3) as lab, ExitStack() as ending:
        for name, (namespace, host) in zip(NAMES, lab.items(), strict=True):
            address = f"tcp://{host}:{PORT}"
            text += f"  - {{name: {name}, address: '{address}', macs_per_s: 5e8}}\n"
            cache, keys = tmp_path / f"cache of {name}", tmp_path / "keys"
            ending.enter_context(agent_in(namespace, address, name, cache, keys))
        slowed(next(iter(lab)), f"{SLOW_MBIT:g}mbit")
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        yield path


def launched(cluster: Path) -> tuple[Outcome, str]:
    said = io.StringIO()
    with LineDisplay(said) as progress:
        outcome = launch(Request(cluster), progress, started_s=time.monotonic())
    assert outcome.report is not None
    assert outcome.report.agrees
    return outcome, said.getvalue()


def crossing_bytes(plan: Plan | None, node: str) -> int:
    """The bytes of a frame that cross the link of a node."""
    assert plan is not None
    return sum(
        channel.tensor.bytes
        for channel in plan.channels
        if node in (channel.source_device, channel.target_device)
    )


def test_the_first_launch_measures_the_links_and_the_next_one_knows_them(cluster: Path) -> None:
    """Without the measurement, a part of the network with large tensors would go to the board
    behind the slow link."""
    with LineDisplay(io.StringIO()) as progress:
        assumed = read_planner(load_cluster(cluster), progress).plan(progress)
    assert crossing_bytes(assumed, "left") > 100_000

    outcome, said = launched(cluster)
    found = SAID.search(said)
    assert found is not None, said
    assert "left" in found.groups()
    assert float(found[3]) * 8 / 1000 == pytest.approx(SLOW_MBIT, rel=0.3)
    assert crossing_bytes(outcome.plan, "left") < 10_000

    outcome, said = launched(cluster)
    assert SAID.search(said) is None, "they are known"
    assert crossing_bytes(outcome.plan, "left") < 10_000
