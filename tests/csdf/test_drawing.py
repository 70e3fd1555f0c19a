"""Drawings show every actor and channel, whatever they are called, and mark the critical cycle."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csdf.errors import TooLargeError
from csdf.formats import sdf3
from csdf.formats.drawing import BOX_HEIGHT, as_svg, layout, marked
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs, graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"
SVG = "{http://www.w3.org/2000/svg}"


@given(consistent_graphs(), st.text())
def test_all_is_there_once(found: Graph, name: str) -> None:
    found = replace(found, name=name)
    picture = marked(found)
    root = ElementTree.fromstring(as_svg(picture))
    assert len(root.findall(f"{SVG}rect")) == len(found.actors)
    assert len(root.findall(f"{SVG}path")) == len(picture.graph.channels)


def test_actors_stand_right_of_those_they_read_from() -> None:
    found = graph(
        {"B": (1,), "A": (1,), "C": (1,)},
        ("A", "B", (1,), (1,)),
        ("B", "C", (1,), (1,)),
        ("C", "A", (1,), (1,), 1),
    )
    root = ElementTree.fromstring(as_svg(marked(found)))
    boxes = [int(str(box.get("x"))) for box in root.findall(f"{SVG}rect")]
    assert boxes[1] < boxes[0] < boxes[2]


@given(consistent_graphs(max_actors=6, max_channels=10))
def test_channels_past_other_actors_cross_none(some: Graph) -> None:
    found = marked(some).graph
    where = layout(found, 110)
    for name, lane in where.lanes.items():
        ends = found.channel[name].source, found.channel[name].target
        low, high = sorted(where.corners[actor][0] for actor in ends)
        passed = [y for x, y in where.corners.values() if low <= x <= high]
        assert lane > max(passed) + BOX_HEIGHT
        assert lane < where.height
    for one, other in itertools.combinations(where.lanes, 2):
        reach = [
            {where.corners[end][0] for end in (found.channel[n].source, found.channel[n].target)}
            for n in (one, other)
        ]
        apart = max(reach[0]) < min(reach[1]) or max(reach[1]) < min(reach[0])
        assert apart or where.lanes[one] != where.lanes[other]


def test_layers_stand_as_far_apart_as_what_is_written_between_them() -> None:
    narrow = graph(dict.fromkeys("AB", (1,)), ("A", "B", (1,), (1,)))
    wide = graph(dict.fromkeys("AB", (1,)), ("A", "B", (10**9,), (10**9,), 0, 2 * 10**9))
    widths = [
        int(ElementTree.fromstring(as_svg(marked(one))).get("width", "0")) for one in (narrow, wide)
    ]
    assert widths[0] < widths[1]


def test_the_critical_cycle_is_red() -> None:
    found = sdf3.read(REFERENCE / "cnnrows_1_2_4.xml")
    picture = marked(found, throughput(found).critical)
    assert picture.actors == {"in", "conv"}
    assert "i" in picture.channels
    root = ElementTree.fromstring(as_svg(picture))
    red = [box for box in root.findall(f"{SVG}rect") if box.get("stroke") == "#c0392b"]
    assert len(red) == 2
    lines = {line[0].text: line.get("stroke") for line in root.findall(f"{SVG}path")}
    assert lines["i: 8*1 → 8*1,0 ≤1"] == "#c0392b"


def test_names_cannot_break_out() -> None:
    found = graph({'A"];}<b>\n\\': (1,)})
    assert "<b>" not in as_svg(marked(found))


def test_too_many_actors_for_a_picture() -> None:
    found = graph({f"a{i}": (1,) for i in range(2001)})
    with pytest.raises(TooLargeError, match="at most 2000"):
        as_svg(marked(found))
