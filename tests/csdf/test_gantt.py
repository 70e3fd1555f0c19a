"""Charts and traces show every firing once, and hold whatever an actor may be called."""

from __future__ import annotations

import json
from fractions import Fraction
from xml.etree import ElementTree

import pytest

from csdf.errors import TooLargeError
from csdf.execution.simulation import Timeline, simulate
from csdf.formats import gantt
from tests.csdf.graphs import graph

SVG = "{http://www.w3.org/2000/svg}"


def example() -> Timeline:
    found = graph({"<A>": (2, 1), "B&": (5,)}, ("<A>", "B&", (1, 0), (1,), 0, 2))
    return simulate(found, 3, {"<A>": "P", "B&": "P"})


def test_a_chart_has_a_box_per_firing() -> None:
    root = ElementTree.fromstring(gantt.as_svg(example()))
    boxes = root.findall(f"{SVG}rect")
    titles = [box.findtext(f"{SVG}title") for box in boxes]
    assert len(boxes) == 9
    assert titles[0] == "<A>[0], iteration 0, 0 to 2"
    assert "P" in [text.text for text in root.findall(f"{SVG}text")]


@pytest.mark.parametrize(
    ("time", "last"),
    [(19, "180"), (Fraction(1, 3), "3"), (10**40, "1e+41"), (Fraction(1, 10**12), "1e-11")],
)
def test_the_axis_has_round_numbers(time: Fraction, last: str) -> None:
    root = ElementTree.fromstring(gantt.as_svg(simulate(graph({"A": (time,)}), 10)))
    ticks = [text.text for text in root.findall(f"{SVG}text[@y='12']")]
    assert (ticks[0], ticks[-1]) == ("0", last)
    assert 4 <= len(ticks) <= 11


def test_firings_that_overlap_do_not_cover_each_other() -> None:
    found = simulate(graph({"A": (4,)}, concurrency=3), 6)
    root = ElementTree.fromstring(gantt.as_svg(found))
    boxes = [(box.get("x"), box.get("y")) for box in root.findall(f"{SVG}rect")]
    assert len(set(boxes)) == 6
    assert len({y for _, y in boxes}) == 3


def test_where_no_time_passes_there_is_still_a_chart() -> None:
    root = ElementTree.fromstring(gantt.as_svg(simulate(graph({"A": (0,)}), 2)))
    assert len(root.findall(f"{SVG}rect")) == 2
    assert ElementTree.fromstring(gantt.as_svg(simulate(graph({}), 2))) is not None


def test_a_chart_that_nobody_could_look_at_is_refused() -> None:
    with pytest.raises(TooLargeError, match="simulate fewer iterations"):
        gantt.as_svg(simulate(graph({"A": (1,)}), 20_001))


def test_a_trace_has_an_event_per_firing() -> None:
    trace = json.loads(json.dumps(gantt.as_trace(example())))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == 9
    assert events[0] == {
        "name": "<A>[0]",
        "cat": "firing",
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "ts": 0.0,
        "dur": 2.0,
        "args": {"iteration": 0},
    }
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["P"]
