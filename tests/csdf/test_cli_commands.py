"""The console command's other commands: capacities, schedule, simulate, draw, convert."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from csdf.formats import files
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def test_capacities(csdf: Csdf) -> None:
    assert csdf("capacities", "cnnrows_unbounded.xml").lines == [
        "size (tokens)  period  i  p  f",
        "            7      59  1  2  4",
        "            8      48  2  2  4",
        "            9      45  2  3  4",
        "Each row is proved: nothing smaller has its period. 45 is reached.",
    ]


def test_capacities_of_many_channels_are_listed_by_what_changes(csdf: Csdf) -> None:
    names = [f"a{i}" for i in range(13)]
    times = dict.fromkeys(names, (1,)) | {"a4": (5,), "a5": (5,)}
    channels = [(a, b, (1,), (1,)) for a, b in pairwise(names)]
    file = graph(times, *channels)
    lines = csdf("capacities", file).lines
    assert lines[1].startswith("           12      10  c1 1, c2 1, c3 1")
    assert lines[2:-1] == ["           13       6  c5 2", "           15       5  c4 2, c6 2"]


def test_capacities_as_json(csdf: Csdf) -> None:
    file = "cnnrows_unbounded.xml"
    point = {"size": 8, "period": "48", "capacities": {"i": 2, "p": 2, "f": 4}}
    live = {"size": 7, "period": "59", "capacities": {"i": 1, "p": 2, "f": 4}}
    assert csdf("capacities", "--json", "--period", "50", file).json == {
        "unit": "tokens",
        "channels": ["i", "p", "f"],
        "goal": "50",
        "complete": True,
        "points": [live, point],
        "next_at_least": None,
        "smallest_live": {**live, "exact": True, "at_least": 7},
        "smallest_for_goal": {**point, "exact": True, "at_least": 8},
    }


def test_capacities_of_what_is_bounded(csdf: Csdf) -> None:
    file = "residual_skip3.xml"
    assert "--resize finds smaller capacities" in csdf("capacities", file, code=2).err
    assert "          12       8  4  4     4" in csdf("capacities", "--resize", file).out


def test_capacities_where_there_are_none(csdf: Csdf) -> None:
    assert "Deadlock" in csdf("capacities", "sample_no_tokens_deadlock.xml", code=1).err
    assert "contradict each other" in csdf("capacities", "inconsistent_par.xml", code=1).err
    csdf("capacities", "--period", "1/0", "cnnrows_unbounded.xml", code=2)


def test_what_is_not_found_is_bounded(csdf: Csdf) -> None:
    out = csdf("capacities", "--effort", "2", "cnnrows_unbounded.xml").out
    assert "15 tokens are enough and 9 are proved to be needed (a gap of 66.7 %)" in out


def test_a_schedule(csdf: Csdf) -> None:
    file = "residual_skip4.xml"
    found = csdf("schedule", "--json", file).json
    assert found["period"] == "8"
    assert found["starts"]["conv"] == ["0", "2", "4", "6"]
    assert csdf("schedule", "--period", "10", file).out.startswith(
        "every firing again after 10; it starts at\n"
    )
    said = csdf("schedule", "--period", "7", file, code=2).err
    assert "cannot keep a period of 7; the shortest is 8" in said
    csdf("schedule", "residual_skip3.xml", code=1)


def test_a_simulation(tmp_path: Path, csdf: Csdf) -> None:
    file = "twodev_4_4.xml"
    chart, trace = tmp_path / "chart.svg", tmp_path / "trace.json"
    wanted = ["--iterations", "4", "--gantt", str(chart), "--trace", str(trace)]
    found = csdf("simulate", file, "--json", *wanted).json
    assert found["firings"] == 32
    times = [int(time) for time in found["completed"]]
    assert times[3] - times[2] == 15
    assert chart.read_text().count("<rect") == 32
    assert len(json.loads(trace.read_text())["traceEvents"]) == 32 + 3
    assert "P: busy for" in csdf("simulate", file, "--on", "P=d0,d1,link").lines[-1]


def test_a_simulation_that_cannot_be(tmp_path: Path, csdf: Csdf) -> None:
    assert "no firing can begin" in csdf("simulate", "residual_skip3.xml", code=1).err
    file = "twodev_4_4.xml"
    said = csdf("simulate", file, "--gantt", str(tmp_path / "no" / "chart.svg"), code=2).err
    assert "cannot be written: No such file" in said
    said = csdf("simulate", file, "--gantt", str(tmp_path / "chart.png"), code=2).err
    assert "does not end in .svg" in said
    csdf("simulate", file, "--iterations", "0", code=2)
    csdf("simulate", file, "--on", "d0", code=2)


@pytest.mark.parametrize(
    ("command", "given", "sentence"),
    [
        ("simulate", "--on P=d0 --on Q=d0", "'d0' is to run on both 'P' and 'Q'"),
        ("schedule", "--on P=d0 --on Q=d0", "'d0' is to run on both 'P' and 'Q'"),
        ("simulate", "--on P=d0 --order Q=d0,d1", "'d0' is to run on both 'P' and 'Q'"),
        ("simulate", "--order P=d0,d1 --order Q=d0", "'d0' is to run on both 'P' and 'Q'"),
        ("simulate", "--on P=d0 --order P=d1", "'d0' is to run on 'P', whose order lacks it"),
        ("simulate", "--order P=d0 --order P=d1", "processor 'P' has two orders"),
        ("schedule", "--cycles d0=2,d0=3", "'d0=2,d0=3' gives an actor two numbers of cycles"),
    ],
)
def test_options_that_contradict_each_other(
    command: str, given: str, sentence: str, csdf: Csdf
) -> None:
    assert sentence in csdf(command, "twodev_4_4.xml", *given.split(), code=2).err


def test_a_drawing(tmp_path: Path, csdf: Csdf) -> None:
    file = "cnnrows_1_2_4.xml"
    assert csdf("draw", file).out.startswith("<svg")
    csdf("draw", file, "--output", str(tmp_path / "picture.svg"))
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")
    assert 'stroke="#c0392b"' not in csdf("draw", "inconsistent_par.xml").out
    said = csdf("draw", file, "--output", "picture.dot", code=2).err
    assert "'picture.dot' does not end in .svg" in said


def test_conversion_there_and_back(tmp_path: Path, csdf: Csdf) -> None:
    file, there, back = REFERENCE / "sample_b_8_9_5.xml", tmp_path / "a.json", tmp_path / "a.xml"
    csdf("convert", file, str(there))
    csdf("convert", str(there), str(back))
    assert files.read(back) == files.read(there) == files.read(file)
    assert csdf("analyze", "--json", str(there)).json["period"] == "25"
    there.write_text("{}")
    assert csdf("analyze", str(there), code=2).err == f"csdf: {there}: the file has no 'actors'\n"


def test_a_link_that_leads_to_itself_cannot_be_written(tmp_path: Path, csdf: Csdf) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(link.name)
    said = csdf("convert", "twodev_4_4.xml", link, code=2).err
    assert f"{link} cannot be written: Too many levels of symbolic links" in said


def test_actors_that_share_a_processor(csdf: Csdf) -> None:
    file = "twodev_4_4.xml"
    order = "P=" + ",".join(["d0"] * 3 + ["link"] * 3 + ["d1"] * 2)
    assert csdf("analyze", file, "--json", "--order", order).json["period"] == "35"
    said = csdf("analyze", file, "--order", "P=d0", code=2).err
    assert "has 1 firings of 'd0'; an iteration has 3" in said


def test_a_pipelined_order(csdf: Csdf) -> None:
    channels = [("A", "B", (1,), (1,), 0, 2), ("B", "C", (1,), (1,), 0, 2)]
    file = graph({"A": (2,), "B": (4,), "C": (3,)}, *channels)
    wanted = ["analyze", file, "--source", "A", "--sink", "C", "--order"]
    out = csdf(*wanted, "P=A,C@1").out
    assert "period      5 per iteration" in out
    assert "latency     9 for the first iteration from A to C" in out
    found = csdf(*wanted, "P=A@1,C", "--json", code=1).json
    assert (found["live"], found["latency"]) == (False, None)
    assert found["deadlock"]["diagnosis"].startswith("the orders deadlock: 'C' waits for tokens")
    assert "processor 'P' has two orders" in csdf(*wanted, "P=A", "--order", "P=C", code=2).err


def test_a_schedule_in_given_orders(csdf: Csdf) -> None:
    channels = [("A", "B", (1,), (1,), 0, 2), ("B", "C", (1,), (1,), 0, 2)]
    file = graph({"A": (2,), "B": (4,), "C": (3,)}, *channels)
    assert csdf("schedule", file, "--order", "P=A,C@1").lines == [
        "P=A,C@1",
        "every firing again after 5; it starts at",
        "A: 0",
        "B: 2",
        "C: 7",
    ]
    assert csdf("schedule", file, "--json", "--order", "P=A,C@1").json == {
        "period": "5",
        "iterations": 1,
        "orders": {"P": ["A", "C@1"]},
        "starts": {"A": ["0"], "B": ["2"], "C": ["7"]},
    }


def test_a_graph_is_generated_and_made_homogeneous(tmp_path: Path, csdf: Csdf) -> None:
    made, expanded = str(tmp_path / "made.xml"), str(tmp_path / "hsdf.json")
    options = ["--actors", "3", "--channels", "4", "--firings", "20", "--feedback", "1"]
    csdf("generate", made, *options, "--capacities", "tight", "--seed", "4")
    csdf("convert", "--hsdf", made, expanded)
    one, other = (csdf("analyze", "--json", file).json["period"] for file in (made, expanded))
    assert one == other
    said = csdf("generate", made, "--actors", "9", "--channels", "2", code=2).err
    assert "2 channels do not join 9 actors; 8 or more do" in said


def test_a_graph_of_one_actor_is_generated(tmp_path: Path, csdf: Csdf) -> None:
    made = tmp_path / "one.json"
    csdf("generate", made, "--actors", "1", "--channels", "0")
    assert (len(files.read(made).actors), len(files.read(made).channels)) == (1, 0)
    said = csdf("generate", made, "--actors", "1", code=2).err
    assert "a graph of one actor has no channels; give 0 channels" in said
