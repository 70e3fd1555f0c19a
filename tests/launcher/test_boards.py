"""What boards have measured, and the plans that are made with it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import cnn
from cnn.subnet import stated_opset
from launcher.config.cluster import NodeConfig
from launcher.config.load import load_cluster
from launcher.core.roll import Greeted, Roll, ThreadShare
from launcher.errors import BadInputError
from launcher.plan.boards import check_opsets, described, figures_wanted, with_boards
from launcher.plan.devices import NO_FACTS, Facts, devices_of
from launcher.plan.subnet_files import cut_subnets
from nodes.protocol.messages import PROTOCOL, BoardFigures, EngineOffer, Welcome
from nodes.protocol.schema import FIGURES as RECORD
from partition.devices import Device
from partition.measured.board import MeasuredFigures, with_figures
from partition.planner import plan_solution
from partition.strategies.base import Problem
from partition.strategies.contiguous.sequential import Sequential

FIGURES = BoardFigures(1, 1e-10, 1e-10, 1e-10, 3e-11, 1e-10, 1e-10, 1e-10, 1e-4, 2e-4, 1e-9, 4e-9)
WELCOME = Welcome(PROTOCOL, "a", "1", "tcp://192.0.2.7:5501", "ORT", "board", 4, 1, threads=4)


def node(name: str, **more: object) -> NodeConfig:
    return NodeConfig(name=name, **{"address": f"tcp://192.0.2.{ord(name)}:5500", **more})


def roll(**welcomes: Welcome) -> Roll:
    return Roll({name: Greeted("", welcome) for name, welcome in welcomes.items()})


def test_boards_are_asked_for_the_threads_that_their_nodes_compute_with() -> None:
    nodes = (node("a", threads=3), node("b", host="pc"), node("c", host="pc"))
    wanted = figures_wanted(nodes, {"a", "b", "c"})
    assert wanted["a"] == ThreadShare(3, 1)
    assert [wanted[name].sharing for name in "bc"] == [2, 2]


def test_agents_of_this_machine_alone_are_not_asked() -> None:
    nodes = (node("a", address=None), node("b", address=None))
    assert figures_wanted(nodes, {"a", "b"}) == {}
    assert figures_wanted((*nodes, node("c")), {"a", "b", "c"}).keys() == {"a", "b", "c"}


@pytest.mark.parametrize("key", [{"engine": "openvino"}, {"device": "gpu"}, {"precision": "fp16"}])
def test_a_node_with_an_engine_of_its_own_is_not_asked(key: dict[str, str]) -> None:
    assert figures_wanted((node("a", **key), node("b")), {"a", "b"}).keys() == {"b"}


@pytest.mark.parametrize(
    ("changes", "threads", "serves"),
    [
        ({}, 4, False),  # all cores compute
        ({}, 1, True),
        ({"spare_cores": 1.0}, 4, True),
        ({"threads": 1, "spare_cores": 0.02}, 1, False),  # under a quota
        ({"threads": 1, "spare_cores": 1.9}, 1, True),  # a quota of the computing thread alone
        ({"threads": 0, "protocol": PROTOCOL - 1}, 1, False),  # of the version before
    ],
    ids=str,
)
def test_the_network_delays_computing_where_no_core_is_spare(
    changes: dict[str, object], threads: int, serves: bool
) -> None:
    nodes = (node("a", threads=threads),)
    facts = with_boards(NO_FACTS, roll(a=replace(WELCOME, **changes)), nodes)
    assert ("a" in facts.serving) == serves


@pytest.mark.parametrize(
    "host", [{"host": "pc"}, {"address": None}, {"address": "tcp://127.0.0.1:1"}]
)
def test_boards_of_one_machine_may_be_busy_at_the_same_time(host: dict[str, object]) -> None:
    nodes = (node("a", **host), node("b", **host))
    welcomes = roll(a=WELCOME, b=WELCOME)
    assert not with_boards(NO_FACTS, welcomes, nodes).serving


def test_devices_have_what_was_measured_unless_the_user_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: builtin:yolov2\n"
        "nodes:\n"
        "  - {name: a, address: 'tcp://192.0.2.1:5500'}\n"
        "  - {name: b, address: 'tcp://192.0.2.2:5500', macs_per_s: 2e9}\n"
        "  - {name: c, address: 'tcp://192.0.2.3:5500', accelerator: false}\n"
    )
    cluster = load_cluster(path)
    facts = Facts(figures=dict.fromkeys("ab", FIGURES), serving=frozenset("abc"))
    a, b, c = devices_of(cluster, facts=facts)
    assert a.layer_rates is not None
    assert a.macs_per_s == pytest.approx(1e10)
    assert (b.macs_per_s, b.layer_rates) == (2e9, None)
    assert b.wire_s_per_byte == pytest.approx(5e-10)
    assert (a.wire_is_free, b.wire_is_free, c.wire_is_free) == (True, True, False)
    assert c == devices_of(cluster)[2]


def test_what_boards_said_is_shown() -> None:
    found = Roll(
        {
            "a": Greeted("", WELCOME, figures=FIGURES),
            "b": Greeted("", WELCOME, no_figures="its board still measures itself"),
            "c": Greeted("", WELCOME),
        }
    )
    assert list(described(found, {"c": 4})) == [
        "node a computes 10 G multiply-accumulates per second with 1 thread, as its board has "
        "measured",
        "node b is planned by estimates: its board still measures itself",
        "node c computes with 4 threads",
    ]


def test_a_part_that_needs_a_newer_operator_set_is_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    model = cnn.read("builtin:yolov2")
    devices = (Device("a"), Device("b"))
    problem = Problem(model.network, devices)
    plan = plan_solution(problem, Sequential().solve(problem), "")
    subnets = cut_subnets(model, plan, tmp_path, lambda *_: None)
    needed = max(stated_opset(subnets[phase.name].graph) for phase in plan.phases)
    assert needed > 1
    check_opsets(plan, subnets, Facts(opsets={"a": needed, "b": needed}))
    check_opsets(plan, subnets, NO_FACTS)
    with pytest.raises(BadInputError, match=f"node 'b'.* set {needed} .*is {needed - 1};"):
        check_opsets(plan, subnets, Facts(opsets={"a": needed, "b": needed - 1}))


def test_the_operator_set_is_that_of_the_engine_that_computes() -> None:
    offers = (EngineOffer("onnxruntime", opset=21), EngineOffer("tvm"))
    welcomes = roll(a=replace(WELCOME, engines=offers), b=replace(WELCOME, engines=offers))
    nodes = (node("a"), node("b", engine="tvm"))
    assert with_boards(NO_FACTS, welcomes, nodes).opsets == {"a": 21}


@pytest.mark.parametrize("figure", [name for name in BoardFigures.__slots__ if name != "threads"])
@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-18, 1e3])
def test_whatever_figures_the_protocol_allows_a_plan_is_made(figure: str, value: float) -> None:
    try:
        figures = RECORD.unpack({**RECORD.pack(FIGURES), figure: value})
    except ValueError:
        assert value < 1e-18  # a board whose layers take no time
        return
    network = cnn.read("builtin:yolov2").network
    devices = (with_figures(Device("a"), MeasuredFigures(**asdict(figures))), Device("b"))
    problem = Problem(network, devices)
    assert 0 < plan_solution(problem, Sequential().solve(problem), "").period_s < float("inf")
    assert list(described(Roll({"a": Greeted("", WELCOME, figures=figures)}), {}))
