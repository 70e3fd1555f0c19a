"""The console command's other commands: capacities, schedule, simulate, draw, convert."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.formats import files, json_format
from tests.csdf.graphs import graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def test_capacities(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacities", str(REFERENCE / "cnnrows_unbounded.xml")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "size (tokens)  period  i  p  f",
        "            7      59  1  2  4",
        "            8      48  2  2  4",
        "            9      45  2  3  4",
        "Each row is proved: nothing smaller has its period. 45 is reached.",
    ]


def test_capacities_of_many_channels_are_listed_by_what_changes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = [f"a{i}" for i in range(13)]
    times = dict.fromkeys(names, (1,)) | {"a4": (5,), "a5": (5,)}
    channels = [(a, b, (1,), (1,)) for a, b in pairwise(names)]
    file = tmp_path / "chain.json"
    file.write_text(json_format.write(graph(times, *channels)))
    assert main(["capacities", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("           12      10  c1 1, c2 1, c3 1")
    assert lines[2:-1] == ["           13       6  c5 2", "           15       5  c4 2, c6 2"]


def test_capacities_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "cnnrows_unbounded.xml")
    assert main(["capacities", "--json", "--period", "50", file]) == 0
    point = {"size": 8, "period": "48", "capacities": {"i": 2, "p": 2, "f": 4}}
    live = {"size": 7, "period": "59", "capacities": {"i": 1, "p": 2, "f": 4}}
    assert json.loads(capsys.readouterr().out) == {
        "unit": "tokens",
        "channels": ["i", "p", "f"],
        "goal": "50",
        "complete": True,
        "points": [live, point],
        "next_at_least": None,
        "smallest_live": {**live, "exact": True, "at_least": 7},
        "smallest_for_goal": {**point, "exact": True, "at_least": 8},
    }


def test_capacities_of_what_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "residual_skip3.xml")
    assert main(["capacities", file]) == 2
    assert "--resize looks for smaller ones" in capsys.readouterr().err
    assert main(["capacities", "--resize", file]) == 0
    assert "          12       8  4  4     4" in capsys.readouterr().out


def test_capacities_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacities", str(REFERENCE / "sample_no_tokens_deadlock.xml")]) == 1
    assert "Deadlock" in capsys.readouterr().err
    assert main(["capacities", str(REFERENCE / "inconsistent_par.xml")]) == 1
    assert "contradict each other" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["capacities", "--period", "1/0", str(REFERENCE / "cnnrows_unbounded.xml")])


def test_what_is_not_found_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacities", "--effort", "2", str(REFERENCE / "cnnrows_unbounded.xml")]) == 0
    out = capsys.readouterr().out
    assert "15 tokens are enough and 9 are proved to be needed (a gap of 66.7 %)" in out


def test_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "residual_skip4.xml")
    assert main(["schedule", "--json", file]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["period"] == "8"
    assert found["starts"]["conv"] == ["0", "2", "4", "6"]
    assert main(["schedule", "--period", "10", file]) == 0
    assert capsys.readouterr().out.startswith("every firing again after 10; it starts at\n")
    assert main(["schedule", "--period", "7", file]) == 2
    assert "cannot keep a period of 7; the shortest is 8" in capsys.readouterr().err
    assert main(["schedule", str(REFERENCE / "residual_skip3.xml")]) == 1


def test_a_simulation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(REFERENCE / "twodev_4_4.xml")
    chart, trace = tmp_path / "chart.svg", tmp_path / "trace.json"
    wanted = ["--iterations", "4", "--gantt", str(chart), "--trace", str(trace)]
    assert main(["simulate", file, "--json", *wanted]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["firings"] == 32
    times = [int(time) for time in found["completed"]]
    assert times[3] - times[2] == 15
    assert chart.read_text().count("<rect") == 32
    assert len(json.loads(trace.read_text())["traceEvents"]) == 32 + 3
    assert main(["simulate", file, "--on", "P=d0,d1,link"]) == 0
    assert "P: busy for" in capsys.readouterr().out.splitlines()[-1]


def test_a_simulation_that_cannot_be(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["simulate", str(REFERENCE / "residual_skip3.xml")]) == 1
    assert "no firing can begin" in capsys.readouterr().err
    file = str(REFERENCE / "twodev_4_4.xml")
    assert main(["simulate", file, "--gantt", str(tmp_path / "no" / "chart.svg")]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["simulate", file, "--iterations", "0"])
    with pytest.raises(SystemExit):
        main(["simulate", file, "--on", "d0"])


def test_a_drawing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(REFERENCE / "cnnrows_1_2_4.xml")
    assert main(["draw", file]) == 0
    assert capsys.readouterr().out.startswith("<svg")
    assert main(["draw", file, "--output", str(tmp_path / "picture.svg")]) == 0
    assert (tmp_path / "picture.svg").read_text().startswith("<svg")
    assert main(["draw", str(REFERENCE / "inconsistent_par.xml")]) == 0
    assert 'stroke="#c0392b"' not in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["draw", file, "--output", "picture.dot"])
    assert "'picture.dot' does not end in .svg" in capsys.readouterr().err


def test_conversion_there_and_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, there, back = REFERENCE / "sample_b_8_9_5.xml", tmp_path / "a.json", tmp_path / "a.xml"
    assert main(["convert", str(file), str(there)]) == 0
    assert main(["convert", str(there), str(back)]) == 0
    assert files.read(back) == files.read(there) == files.read(file)
    assert main(["analyze", "--json", str(there)]) == 0
    assert json.loads(capsys.readouterr().out)["period"] == "25"
    there.write_text("{}")
    assert main(["analyze", str(there)]) == 2
    assert capsys.readouterr().err == f"csdf: {there}: the file has no 'actors'\n"


def test_actors_that_share_a_processor(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "twodev_4_4.xml")
    order = "P=" + ",".join(["d0"] * 3 + ["link"] * 3 + ["d1"] * 2)
    assert main(["analyze", file, "--json", "--order", order]) == 0
    assert json.loads(capsys.readouterr().out)["period"] == "35"
    assert main(["analyze", file, "--order", "P=d0"]) == 2
    assert "has 1 firings of 'd0'; an iteration has 3" in capsys.readouterr().err


def test_a_pipelined_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    channels = [("A", "B", (1,), (1,), 0, 2), ("B", "C", (1,), (1,), 0, 2)]
    file.write_text(json_format.write(graph({"A": (2,), "B": (4,), "C": (3,)}, *channels)))
    wanted = ["analyze", str(file), "--source", "A", "--sink", "C", "--order"]
    assert main([*wanted, "P=A,C@1"]) == 0
    out = capsys.readouterr().out
    assert "period      5 per iteration" in out
    assert "latency     9 for the first iteration from A to C" in out
    assert main([*wanted, "P=A@1,C", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["live"], found["latency"]) == (False, None)
    assert found["deadlock"]["diagnosis"].startswith("the orders deadlock: 'C' waits for tokens")
    assert main([*wanted, "P=A", "--order", "P=C"]) == 2
    assert "processor 'P' has two orders" in capsys.readouterr().err


def test_a_schedule_in_given_orders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "chain.json"
    channels = [("A", "B", (1,), (1,), 0, 2), ("B", "C", (1,), (1,), 0, 2)]
    file.write_text(json_format.write(graph({"A": (2,), "B": (4,), "C": (3,)}, *channels)))
    assert main(["schedule", str(file), "--order", "P=A,C@1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "P=A,C@1",
        "every firing again after 5; it starts at",
        "A: 0",
        "B: 2",
        "C: 7",
    ]
    assert main(["schedule", str(file), "--json", "--order", "P=A,C@1"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "period": "5",
        "iterations": 1,
        "orders": {"P": ["A", "C@1"]},
        "starts": {"A": ["0"], "B": ["2"], "C": ["7"]},
    }


def test_a_graph_is_generated_and_made_homogeneous(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, expanded = str(tmp_path / "made.xml"), str(tmp_path / "hsdf.json")
    options = ["--actors", "3", "--channels", "4", "--firings", "20", "--feedback", "1"]
    assert main(["generate", made, *options, "--capacities", "tight", "--seed", "4"]) == 0
    assert main(["convert", "--hsdf", made, expanded]) == 0
    periods = []
    for file in (made, expanded):
        assert main(["analyze", "--json", file]) == 0
        periods.append(json.loads(capsys.readouterr().out)["period"])
    assert periods[0] == periods[1]
    assert main(["generate", made, "--actors", "9", "--channels", "2"]) == 2
    assert "2 channels do not join 9 actors; 8 or more do" in capsys.readouterr().err
