"""The comparison of predictions over the zoo: what it says of runs, and that it goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import figures_of
from benchmarks.zoo.cache import VARIABLE
from benchmarks.zoo_predictions import NodeMemory, Ran, figures, quantile, within, worst
from tests.cnn.models import convolution, save


def ran(*memory: float, period: float = 1.0, network: str = "n") -> Ran:
    """A run that was predicted to hold 100 bytes per node and to take a second per frame."""
    nodes = tuple(NodeMemory(1, 0, 0, 0, 0, 100, round(100 * ratio)) for ratio in memory)
    return Ran(network, "one", nodes, len(nodes), 1.0, 1.0, 1.0, period)


def test_the_node_that_is_furthest_off_counts_in_whichever_direction() -> None:
    assert ran(1.1, 0.8, 1.0).memory_ratio == 0.8
    assert ran(1.1, 0.95, 1.3).memory_ratio == 1.3


def test_quantiles_are_values_that_there_are() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.0) == 1.0
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 1.0) == 3.0


def test_the_share_within_bounds_counts_the_bounds() -> None:
    assert within([0.9, 1.0, 1.1, 1.2], (0.9, 1.1)) == 0.75


def test_nine_in_ten_launches_are_asked_of() -> None:
    runs = [ran(1.0)] * 9 + [ran(2.0, period=3.0)]
    asked = {figure.what: figure.holds for figure in figures(runs) if figure.holds is not None}
    assert list(asked.values()) == [True, True]
    asked = {figure.what: figure.holds for figure in figures([*runs, ran(2.0)])}
    assert False in asked.values()


def test_the_worst_come_first_too_small_or_too_large() -> None:
    runs = [ran(1.1, network="a"), ran(0.5, network="b"), ran(1.3, network="c")]
    table = worst(runs, lambda run: run.memory_ratio, "")
    assert [row[0] for row in table.rows] == ["b", "c", "a"]


@pytest.mark.slow
def test_runs_that_the_file_has_are_not_repeated(tmp_path: Path) -> None:
    """A small network stands in for one of the zoo under its name."""
    save(convolution(), tmp_path, "group-norm.onnx")
    file = tmp_path / "zoo_predictions.json"
    command = [sys.executable, "-m", "benchmarks.zoo_predictions", "group-norm"]
    command += ["--frames", "8", "--json", str(file)]
    environment = {**os.environ, VARIABLE: str(tmp_path)}

    def launches(*ways: str) -> list[str]:
        ended = subprocess.run(
            [*command, "--ways", *ways], env=environment, check=True, capture_output=True, text=True
        )
        return [line for line in ended.stdout.splitlines() if line.startswith("group-norm")]

    assert len(launches("one")) == 1
    assert len(launches("one", "sequential")) == 1
    found = json.loads(file.read_text("utf-8"))
    runs = [Ran.from_json(run) for run in found["data"]["runs"]]
    assert [run.way for run in runs] == ["one", "sequential"]
    assert not any(run.failed for run in runs)
    assert all(0.5 < node.ratio < 1.5 for run in runs for node in run.nodes)
    assert figures_of(found)
