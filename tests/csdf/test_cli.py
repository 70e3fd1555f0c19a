"""`csdf analyze`: what it prints and how it exits."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from csdf.cli.command import main
from csdf.formats import json_format, sdf3
from tests.csdf.graphs import graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def test_a_live_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(REFERENCE / "twodev_2_3.xml")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "twodev_2_3: 3 actors with 6 phases, 7 channels",
        "consistent  yes, 8 firings per iteration",
        "repetitions d0 × 1, link × 3, d1 × 1",
        "live        yes",
        "period      18 per iteration",
        "held by     d0[0]…[1] (self_d0) → d0[2] (a) → link[0] (a_bp)",
        "slack       d0 0, link 0, d1 6",
    ]


def test_latency_between_two_actors(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "cnnrows_2_3_4.xml")
    assert main(["analyze", file, "--source", "in", "--sink", "fc"]) == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "latency     55 for the first iteration from in to fc",
        "            63 in the steady state, self-timed",
        "            55 at best, with the source paced by the period",
    ]
    assert main(["analyze", "--json", file, "--source", "in", "--sink", "fc"]) == 0
    assert json.loads(capsys.readouterr().out)["latency"] == {
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


def test_latency_from_what_is_no_actor(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(REFERENCE / "cnnrows_2_3_4.xml")
    assert main(["analyze", file, "--source", "in", "--sink", "out"]) == 2
    assert "'out' is not an actor of the graph; there are 'in', 'conv'" in capsys.readouterr().err
    assert main(["analyze", file, "--source", "in"]) == 2
    assert "--source and --sink are given together" in capsys.readouterr().err


def test_a_deadlock(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(REFERENCE / "residual_skip3.xml")]) == 1
    assert "Channel 'skip' needs a capacity of 4 instead of 3." in capsys.readouterr().out


def test_an_inconsistent_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(REFERENCE / "inconsistent_par.xml")]) == 1
    assert "contradict each other" in capsys.readouterr().out


def test_json_is_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--json", str(REFERENCE / "twodev_2_3.xml")]) == 0
    found = json.loads(capsys.readouterr().out)
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


def test_what_would_take_too_long_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    """What is known is printed all the same."""
    file = str(REFERENCE / "sample_b_8_9_5.xml")
    assert main(["analyze", "--effort", "10", file]) == 3
    printed = capsys.readouterr()
    assert "live        yes\nperiod      at least 20 and at most 38 per iter" in printed.out
    assert printed.err.count("\n") == 1
    assert "at most 10 are allowed (--effort)" in printed.err
    assert main(["analyze", "--effort", "40", "--json", file]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["live"], found["period"]) == (True, None)
    assert found["period_bounds"] == {"at_least": "20", "at_most": "36"}


def test_parts_and_throughputs_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "two.json"
    found = graph(
        {"A": (3,), "B": (1,), "C": (7,), "D": (1,)},
        ("A", "B", (1,), (1,)),
        ("C", "D", (1,), (3,)),
    )
    file.write_text(json_format.write(found))
    assert main(["analyze", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[4:9] == [
        "period      21 per iteration",
        "parts       2 that no channel joins, each with its own iteration; the period of each:",
        "            A, B: 3",
        "            C, D: 21",
        "throughput  A 1/3, B 1/3, C 1/7, D 1/21 (firings per unit of time)",
    ]
    assert main(["analyze", "--throughput", "--json", str(REFERENCE / "twodev_2_3.xml")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["parts"], printed["throughput"]["link"]) == ([], "1/6")


def test_a_deadlock_is_described_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(REFERENCE / "residual_skip3.xml")]) == 1
    assert capsys.readouterr().out.splitlines()[-7:-1] == [
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
    assert main(["analyze", str(REFERENCE / "sample_b_3_7_5_deadlock.xml")]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "remedy      No change of a single channel. Together:",
        "            Channel 'c2' needs a capacity of 9 instead of 7.",
        "            Channel 'c1' needs a capacity of 8 instead of 3.",
    ]


def test_json_of_what_is_not_live(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--json", str(REFERENCE / "residual_skip3.xml")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["live"], found["period"]) == (False, None)
    assert found["deadlock"]["remedies"][0] == {
        "channel": "skip",
        "change": "capacity",
        "now": 3,
        "needed": 4,
        "reverse_channel": "skip_bp",
        "capacity_needed": None,
    }
    assert main(["analyze", "--json", str(REFERENCE / "inconsistent_par.xml")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["consistent"], found["repetition_vector"]) == (False, None)


def test_what_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["analyze", str(tmp_path / "none.xml")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"csdf: {tmp_path}/none.xml: cannot be read: No such file or directory\n"


def test_wrong_usage() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["analyse"])
    assert caught.value.code == 2


def test_what_would_take_too_long(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A chain whose counts grow by a factor of a billion at every step."""
    names = [f"a{i}" for i in range(2000)]
    channels = [(a, b, (10**9 - i,), (1,)) for i, (a, b) in enumerate(pairwise(names))]
    file = tmp_path / "chain.xml"
    file.write_text(sdf3.write(graph(dict.fromkeys(names, (1,)), *channels)))
    assert main(["analyze", str(file)]) == 3
    assert "more than 2^10000 firings" in capsys.readouterr().err


def test_an_empty_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "empty.xml"
    file.write_text(sdf3.write(graph({})))
    assert main(["analyze", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["period"] == "0"


def test_slack_that_was_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An iteration of 40 002 firings: printed at once only on request."""
    file = tmp_path / "many.json"
    channels = ("A", "B", (40000,), (1,), 0, 80000), ("B", "C", (1,), (40000,), 0, 80000)
    file.write_text(json_format.write(graph({"A": (9,), "B": (1,), "C": (7,)}, *channels)))
    assert main(["analyze", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slack"] is None
    assert main(["analyze", str(file), "--json", "--slack"]) == 0
    slack = json.loads(capsys.readouterr().out)["slack"]
    assert slack == {"A": "39991", "B": "0", "C": "39993"}


def test_what_overtakes_has_no_slack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "overlap.json"
    channels = [("A", "B", (1, 1), (1,), 0, 2)]
    file.write_text(json_format.write(graph({"A": (5, 1), "B": (2,)}, *channels, concurrency=2)))
    assert main(["analyze", str(file), "--source", "A", "--sink", "B"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "latency     7 for the first iteration from A to B",
        "            7 in the steady state, self-timed",
    ]
    assert main(["analyze", str(file), "--slack"]) == 3
    assert "firings of actor 'A' may overlap and have different times" in capsys.readouterr().err
    assert main(["schedule", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["period"], found["iterations"]) == ("5", 2)
    assert main(["schedule", str(file)]) == 0
    assert "every 2 iterations again after 10; they start at" in capsys.readouterr().out


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
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, text: str, missing: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert main(["analyze", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "consistent  yes, 5 firings per iteration",
        "repetitions A × 1, B × 3",
        "live        yes",
        f"period      not known: there is no execution time of {missing}",
    ]
    assert main(["analyze", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["live"], found["period"], found["untimed"]) == (True, None, missing.split(", "))
    for command in (["simulate"], ["capacities"], ["analyze", "--slack"]):
        assert main([*command, str(file)]) == 2
        assert "execution" in capsys.readouterr().err


def test_a_deadlock_is_found_without_execution_times(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "g.json"
    file.write_text(UNTIMED.replace("ROOM", "1"))
    assert main(["analyze", str(file)]) == 1
    assert "live        no, because these waits form a cycle" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert re.fullmatch(r"csdf \d+\.\d+\.\d+\n", capsys.readouterr().out)
