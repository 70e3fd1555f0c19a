"""`csdf analyze`: what it prints and how it exits."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from csdf.formats import sdf3
from tests.csdf.conftest import Csdf
from tests.csdf.graphs import graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def test_a_live_graph(csdf: Csdf) -> None:
    assert csdf("analyze", "twodev_2_3.xml").lines == [
        "twodev_2_3: 3 actors with 6 phases, 7 channels",
        "consistent  yes, 8 firings per iteration",
        "repetitions d0 × 1, link × 3, d1 × 1",
        "live        yes",
        "period      18 per iteration",
        "held by     d0[0]…[1] (self_d0) → d0[2] (a) → link[0] (a_bp)",
        "slack       d0 0, link 0, d1 6",
    ]


def test_latency_between_two_actors(csdf: Csdf) -> None:
    file = "cnnrows_2_3_4.xml"
    assert csdf("analyze", file, "--source", "in", "--sink", "fc").lines[-3:] == [
        "latency     55 for the first iteration from in to fc",
        "            63 in the steady state, self-timed",
        "            55 at best, with the source paced by the period",
    ]
    assert csdf("analyze", "--json", file, "--source", "in", "--sink", "fc").json["latency"] == {
        "source": "in",
        "sink": "fc",
        "distance": 0,
        "first": "55",
        "steady": "63",
        "worst": "63",
        "periodic": "55",
        "minimal": "55",
        "reason": None,
    }


def test_latency_from_an_unknown_actor(csdf: Csdf) -> None:
    file = "cnnrows_2_3_4.xml"
    said = csdf("analyze", file, "--source", "in", "--sink", "out", code=2).err
    assert "'out' is not an actor of the graph; its actors are 'in', 'conv'" in said
    said = csdf("analyze", file, "--source", "in", code=2).err
    assert "--source and --sink must be given together" in said


def test_a_deadlock(csdf: Csdf) -> None:
    said = csdf("analyze", "residual_skip3.xml", code=1).out
    assert "Channel 'skip' needs a capacity of 4 instead of 3." in said


def test_an_inconsistent_graph(csdf: Csdf) -> None:
    assert "contradict each other" in csdf("analyze", "inconsistent_par.xml", code=1).out


def test_json_is_one_object_and_nothing_else(csdf: Csdf) -> None:
    found = csdf("analyze", "--json", "twodev_2_3.xml").json
    assert found == {
        "consistent": True,
        "inconsistency": None,
        "repetition_vector": {"d0": 1, "link": 3, "d1": 1},
        "phase_firings": 8,
        "live": True,
        "period": "18",
        "period_bounds": None,
        "critical_cycle": [
            {"actor": "d0", "phase": 0, "channel": "self_d0", "for_space": False},
            {"actor": "d0", "phase": 1, "channel": "self_d0", "for_space": False},
            {"actor": "d0", "phase": 2, "channel": "a", "for_space": False},
            {"actor": "link", "phase": 0, "channel": "a_bp", "for_space": False},
        ],
        "slack": {"d0": "0", "link": "0", "d1": "6"},
        "latency": None,
        "parts": [],
        "throughput": None,
        "accumulating": None,
        "live_actors": [],
        "deadlock": None,
        "untimed": [],
    }


def test_what_would_take_too_long_is_bounded(csdf: Csdf) -> None:
    """What is known is printed all the same."""
    file = "sample_b_8_9_5.xml"
    printed = csdf("analyze", "--effort", "10", file, code=3)
    assert "live        yes\nperiod      at least 20 and at most 38 per iter" in printed.out
    assert printed.err.count("\n") == 1
    assert "at most 10 are allowed (--effort)" in printed.err
    found = csdf("analyze", "--effort", "40", "--json", file, code=3).json
    assert (found["live"], found["period"]) == (True, None)
    assert found["period_bounds"] == {"at_least": "20", "at_most": "36"}


def test_parts_and_throughputs_are_printed(csdf: Csdf) -> None:
    found = graph(
        {"A": (3,), "B": (1,), "C": (7,), "D": (1,)},
        ("A", "B", (1,), (1,)),
        ("C", "D", (1,), (3,)),
    )
    assert csdf("analyze", found).lines[4:9] == [
        "period      21 per iteration",
        "parts       2 that no channel joins, each with its own iteration; the period of each:",
        "            A, B: 3",
        "            C, D: 21",
        "throughput  A 1/3, B 1/3, C 1/7, D 1/21 (firings per unit of time)",
    ]
    printed = csdf("analyze", "--throughput", "--json", "twodev_2_3.xml").json
    assert (printed["parts"], printed["throughput"]["link"]) == ([], "1/6")


def test_a_deadlock_is_described_line_by_line(csdf: Csdf) -> None:
    assert csdf("analyze", "residual_skip3.xml", code=1).lines[-7:-1] == [
        "live        no, because these waits form a cycle",
        "            'src' waits in phase 3 for 1 more token in channel 'skip_bp' "
        "(room in 'skip'), which 'add' would have to produce",
        "            'add' waits in phase 0 for 1 more token in channel 'k', "
        "which 'conv' would have to produce",
        "            'conv' waits in phase 3 for 1 more token in channel 'm', "
        "which 'src' would have to produce",
        "remedy      Channel 'skip' needs a capacity of 4 instead of 3.",
        "            Or: Channel 'k' would have to start with 1 token instead of 0.",
    ]
    assert csdf("analyze", "sample_b_3_7_5_deadlock.xml", code=1).lines[-3:] == [
        "remedy      No change of a single channel. Together:",
        "            Channel 'c2' needs a capacity of 9 instead of 7.",
        "            Channel 'c1' needs a capacity of 8 instead of 3.",
    ]


def test_json_of_what_is_not_live(csdf: Csdf) -> None:
    found = csdf("analyze", "--json", "residual_skip3.xml", code=1).json
    assert (found["live"], found["period"]) == (False, None)
    assert found["deadlock"]["remedies"][0] == {
        "channel": "skip",
        "change": "capacity",
        "now": 3,
        "needed": 4,
        "reverse_channel": "skip_bp",
        "capacity_needed": None,
    }
    found = csdf("analyze", "--json", "inconsistent_par.xml", code=1).json
    assert (found["consistent"], found["repetition_vector"]) == (False, None)


def test_what_cannot_be_read(tmp_path: Path, csdf: Csdf) -> None:
    captured = csdf("analyze", str(tmp_path / "none.xml"), code=2)
    assert captured.out == ""
    assert captured.err == f"csdf: {tmp_path}/none.xml: cannot be read: No such file or directory\n"


def test_wrong_usage(csdf: Csdf) -> None:
    assert csdf("anaylze", code=2).err == (
        "csdf: there is no command 'anaylze'; did you mean analyze?\n"
    )
    assert "the commands are analyze, " in csdf("xyz", code=2).err


@pytest.mark.parametrize("name", ["README.md", "model.onnx", "graph"])
def test_a_file_of_another_kind(name: str, tmp_path: Path, csdf: Csdf) -> None:
    (tmp_path / name).write_text("# A title")
    said = csdf("analyze", tmp_path / name, code=2).err
    assert "a graph is a JSON file, whose name ends in .json, or an SDF3 XML file" in said
    assert "well-formed" not in said
    said = csdf("scenarios", tmp_path / name, code=2).err
    assert "is not SDF3 XML of type fsmsadf" in said


def test_what_would_take_too_long(tmp_path: Path, csdf: Csdf) -> None:
    """A chain whose counts grow by a factor of a billion at every step."""
    names = [f"a{i}" for i in range(2000)]
    channels = [(a, b, (10**9 - i,), (1,)) for i, (a, b) in enumerate(pairwise(names))]
    file = tmp_path / "chain.xml"
    file.write_text(sdf3.write(graph(dict.fromkeys(names, (1,)), *channels)))
    assert "more than 2^10000 firings" in csdf("analyze", file, code=3).err


def test_an_empty_graph(tmp_path: Path, csdf: Csdf) -> None:
    file = tmp_path / "empty.xml"
    file.write_text(sdf3.write(graph({})))
    assert csdf("analyze", file, "--json").json["period"] == "0"


def test_slack_that_was_asked_for(csdf: Csdf) -> None:
    """An iteration of 40 002 firings: printed at once only on request."""
    channels = ("A", "B", (40000,), (1,), 0, 80000), ("B", "C", (1,), (40000,), 0, 80000)
    file = graph({"A": (9,), "B": (1,), "C": (7,)}, *channels)
    assert csdf("analyze", file, "--json").json["slack"] is None
    slack = csdf("analyze", file, "--json", "--slack").json["slack"]
    assert slack == {"A": "39991", "B": "0", "C": "39993"}


def test_what_overtakes_has_no_slack(csdf: Csdf) -> None:
    channels = [("A", "B", (1, 1), (1,), 0, 2)]
    file = graph({"A": (5, 1), "B": (2,)}, *channels, concurrency=2)
    assert csdf("analyze", file, "--source", "A", "--sink", "B").lines[-2:] == [
        "latency     7 for the first iteration from A to B",
        "            7 in the steady state, self-timed",
    ]
    said = csdf("analyze", file, "--slack", code=3).err
    assert "firings of actor 'A' may overlap and have different times" in said
    found = csdf("schedule", file, "--json").json
    assert (found["period"], found["iterations"]) == ("5", 2)
    assert "every 2 iterations again after 10; they start at" in csdf("schedule", file).out


UNTIMED = """{"actors": [{"name": "A"}, {"name": "B", "execution_times": [2]}],
 "channels": [{"name": "c", "source": "A", "target": "B", "production": [2, 1],
               "consumption": [1], "initial_tokens": 0, "capacity": ROOM}]}"""

UNTIMED_XML = """<sdf3 type="csdf"><applicationGraph><csdf name="g">
  <actor name="A"><port name="p" type="out" rate="2,1"/></actor>
  <actor name="B"><port name="q" type="in" rate="1"/></actor>
  <channel name="c" srcActor="A" srcPort="p" dstActor="B" dstPort="q"/>
</csdf></applicationGraph></sdf3>"""


@pytest.mark.parametrize(
    ("name", "text", "missing"),
    [("g.json", UNTIMED.replace("ROOM", "2"), "A"), ("g.xml", UNTIMED_XML, "A, B")],
)
def test_consistency_and_liveness_need_no_execution_times(
    tmp_path: Path, name: str, text: str, missing: str, csdf: Csdf
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert csdf("analyze", file).lines[1:] == [
        "consistent  yes, 5 firings per iteration",
        "repetitions A × 1, B × 3",
        "live        yes",
        f"period      not known: there is no execution time of {missing}",
    ]
    found = csdf("analyze", file, "--json").json
    assert (found["live"], found["period"], found["untimed"]) == (True, None, missing.split(", "))
    for command in (["simulate"], ["capacities"], ["analyze", "--slack"]):
        assert "execution" in csdf(*command, file, code=2).err


def test_a_deadlock_is_found_without_execution_times(tmp_path: Path, csdf: Csdf) -> None:
    file = tmp_path / "g.json"
    file.write_text(UNTIMED.replace("ROOM", "1"))
    assert "live        no, because these waits form a cycle" in csdf("analyze", file, code=1).out


def test_the_version(csdf: Csdf) -> None:
    assert re.fullmatch(r"csdf \d+\.\d+\.\d+\n", csdf("--version").out)
