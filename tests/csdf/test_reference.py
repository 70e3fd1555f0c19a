"""Every figure of the reference graphs, exactly: two other tools and an oracle agree on them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from csdf.analysis import analyze
from csdf.formats import sdf3
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput

HERE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"
EXPECTED = json.loads((HERE / "reference.json").read_text())


@pytest.mark.parametrize("name", EXPECTED)
def test_figures(name: str) -> None:
    expected = EXPECTED[name]
    graph = sdf3.read(HERE / name)
    found = json.loads(json.dumps(analyze(graph).as_json(), default=str))
    assert len(graph.actors) == expected["actors"]
    assert len(graph.channels) == expected["channels"]
    assert found["consistent"] == expected["consistent"]
    assert found["live"] == expected["live"]
    assert found["phase_firings"] == expected["phase_firings_per_iteration"]
    assert found["period"] == expected["period"]
    assert (found["deadlock"] is None) == (expected["live"] or not expected["consistent"])


@pytest.mark.parametrize("name", [name for name, about in EXPECTED.items() if about["live"]])
@pytest.mark.parametrize("method", ["cycle ratio", "expansion", "state space"])
def test_every_method_gives_them(name: str, method: str) -> None:
    period = throughput(sdf3.read(HERE / name), method).period  # type: ignore[arg-type]
    assert period == Fraction(EXPECTED[name]["period"])


def test_a_skip_channel_one_row_too_small_is_diagnosed() -> None:
    deadlock = analyze(sdf3.read(HERE / "residual_skip3.xml")).deadlock
    assert str(deadlock).endswith("Channel 'skip' needs a capacity of 4 instead of 3.")


def test_storage_and_throughput_points() -> None:
    """The capacities of the Pareto front, set on the unbounded graph itself."""
    about = EXPECTED["cnnrows_unbounded.xml"]["storage_throughput_pareto"]
    graph = sdf3.read(HERE / "cnnrows_unbounded.xml")
    for point in about["points"]:
        room = dict(zip(about["channels"], point["capacities"], strict=True))
        assert throughput(bounded(graph, room)).period == Fraction(point["period"])


def bounded(graph: Graph, room: dict[str, int]) -> Graph:
    channels = tuple(replace(c, capacity=room.get(c.name, c.capacity)) for c in graph.channels)
    return replace(graph, channels=channels)
