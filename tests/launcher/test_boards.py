"""What boards have measured, and the plans that are made with it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest

import cnn
from cnn.subnet import stated_opset
from launcher.config.load import Cluster, load_cluster
from launcher.config.node import NodeConfig
from launcher.core.roll import Greeted, Roll
from launcher.errors import BadInputError
from launcher.plan.boards import check_opsets, described, doubtful, figures_wanted, with_boards
from launcher.plan.devices import NO_FACTS, Facts, devices_of
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model
from launcher.plan.subnet_files import cut_subnets
from nodes.protocol.messages import (
    PROTOCOL,
    BoardFigures,
    Deployed,
    EngineOffer,
    GetFigures,
    Welcome,
)
from nodes.protocol.schema import FIGURES as RECORD
from partition.devices import Device
from partition.measured.board import MeasuredFigures, with_figures
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution
from partition.strategies.contiguous.sequential import Sequential
from tests.launcher.models import DIGITS

FIGURES = BoardFigures(1, 1e-10, 1e-10, 1e-10, 3e-11, 1e-10, 1e-10, 1e-10, 1e-4, 2e-4, 1e-9, 4e-9)
WELCOME = Welcome(PROTOCOL, "a", "1", "tcp://192.0.2.7:5501", "ORT", "board", 4, 1, threads=4)


def node(name: str, **more: object) -> NodeConfig:
    return NodeConfig(name=name, **{"address": f"tcp://192.0.2.{ord(name)}:5500", **more})


def roll(**welcomes: Welcome) -> Roll:
    return Roll({name: Greeted("", welcome) for name, welcome in welcomes.items()})


def test_boards_are_asked_for_the_threads_that_their_nodes_compute_with() -> None:
    nodes = (node("a", threads=3), node("b", host="pc"), node("c", host="pc"))
    for again in (False, True):
        wanted = figures_wanted(nodes, {"a", "b", "c"}, again=again)
        asked = [wanted[name](WELCOME) for name in "abc"]
        assert asked == [GetFigures(threads, again) for threads in (3, 2, 2)]


def test_agents_of_this_machine_alone_are_not_asked() -> None:
    nodes = (node("a", address=None), node("b", address=None))
    assert figures_wanted(nodes, {"a", "b"}) == {}
    assert figures_wanted((*nodes, node("c")), {"a", "b", "c"}).keys() == {"a", "b", "c"}


@pytest.mark.parametrize("key", [{"engine": "openvino"}, {"device": "gpu"}, {"precision": "fp16"}])
def test_a_node_with_its_own_engine_is_not_asked(key: dict[str, str]) -> None:
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
            "b": Greeted("", WELCOME, no_figures="its board is still being measured"),
            "c": Greeted("", WELCOME),
        }
    )
    assert list(described(found, {"c": 4}, {})) == [
        "node a computes 10 G multiply-accumulates per second with 1 thread, as its board has "
        "measured",
        "node b is planned by estimates: its board is still being measured",
        "node c computes with 4 threads",
    ]
    (text,) = described(found.of(["a"]), {}, {"a": 2e9, "b": 1e9})
    assert text.endswith("measured; cluster.yaml says macs_per_s: 2 G, which is used instead")
    (text, _) = described(found.of(["c"]), {"c": 64}, {})
    assert text.startswith("node c has threads: 64 in cluster.yaml, and its board has 4 cores")


def test_a_stated_speed_that_its_board_contradicts_is_reported() -> None:
    figures = {"a": FIGURES, "b": FIGURES}
    assert doubtful({"a": 6e9, "b": 1.9e10, "c": 1.0}, figures, "ab") == []
    slow, fast = doubtful({"a": 1e6, "b": 2.1e10}, figures, "b")
    assert slow == (
        "node a is not used: cluster.yaml says macs_per_s: 1 M of a, and its board has measured "
        "10 G; without macs_per_s the plan follows that"
    )
    assert fast.startswith("cluster.yaml says macs_per_s: 21 G of b")


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
    network = cnn.read(DIGITS / "digits.onnx").network
    devices = (with_figures(Device("a"), MeasuredFigures(**asdict(figures))), Device("b"))
    problem = Problem(network, devices)
    assert 0 < plan_solution(problem, Sequential().solve(problem), "").period_s < float("inf")
    assert list(described(Roll({"a": Greeted("", WELCOME, figures=figures)}), {}, {}))


# ------------------------------------------------------------ boards that are alike


def cluster_of_boards(folder: Path, nodes: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(f"model: {DIGITS / 'digits.onnx'}\nnodes: [{nodes}]\n")
    return load_cluster(path)


def facts_of(cluster: Cluster, speeds: dict[str, float], **kinds: str) -> Facts:
    """Return what boards report that take `speeds` times `FIGURES`; those without did not measure
    themselves. All are of one kind but those in `kinds`."""
    roll = {
        node.name: Greeted(
            "",
            replace(WELCOME, machine=kinds.get(node.name, "pi")),
            figures=slower(FIGURES, speeds[node.name]) if node.name in speeds else None,
        )
        for node in cluster.config.nodes
    }
    return with_boards(NO_FACTS, Roll(roll), NO_FACTS.nodes(cluster))


def slower(figures: BoardFigures, factor: float) -> BoardFigures:
    return BoardFigures(
        **{
            key: value * (factor if key != "threads" else 1)
            for key, value in asdict(figures).items()
        }
    )


FOUR = ", ".join(f"{{name: {name}, address: 'tcp://192.0.2.{ord(name)}:5500'}}" for name in "abcd")


@pytest.mark.parametrize(
    ("speeds", "kinds", "groups"),
    [
        ({"a": 1.0, "b": 1.1, "c": 1.05, "d": 0.98}, {}, ["abcd"]),
        ({"a": 1.0, "b": 2.0, "c": 1.04, "d": 2.1}, {}, ["ac", "bd"]),
        ({"a": 1.0, "b": 1.1, "c": 1.2, "d": 1.3}, {}, ["ab", "cd"]),
        ({"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}, {"b": "xavier", "d": "orin"}, ["ac"]),
        ({"a": 1.0, "b": 1.0}, {}, ["abcd"]),
        ({"a": 1.0, "b": 2.0}, {}, []),
        ({"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}, {}, []),
    ],
    ids=str,
)
def test_boards_of_one_kind_that_are_about_as_fast_are_alike(
    tmp_path: Path, speeds: dict[str, float], kinds: dict[str, str], groups: list[str]
) -> None:
    facts = facts_of(cluster_of_boards(tmp_path, FOUR), speeds, **kinds)
    assert sorted(map(sorted, facts.alike)) == sorted(map(sorted, groups))


def test_boards_that_are_alike_are_planned_as_equal(tmp_path: Path) -> None:
    cluster = cluster_of_boards(tmp_path, FOUR)
    devices = devices_of(cluster, facts=facts_of(cluster, {"a": 1.0, "b": 1.1, "c": 1.04, "d": 3}))
    a, b, c, d = (replace(device, name="") for device in devices)
    assert a == b == c == replace(d, **{key: getattr(a, key) for key in RATES})
    assert a.macs_per_s == pytest.approx(1 / (1.04 * FIGURES.dense_s_per_mac))
    assert d.macs_per_s == pytest.approx(1 / (3 * FIGURES.dense_s_per_mac))


RATES = (
    "macs_per_s",
    "memory_bytes_per_s",
    "wire_s_per_message",
    "wire_s_per_byte",
    "encode_s_per_byte",
    "cut_s_per_byte",
    "run_s",
    "firing_s",
    "layer_rates",
)


def test_a_stated_speed_is_not_shared(tmp_path: Path) -> None:
    stated = FOUR.replace("name: b,", "name: b, macs_per_s: 1G,")
    cluster = cluster_of_boards(tmp_path, stated)
    facts = facts_of(cluster, dict.fromkeys("abcd", 1.0))
    assert facts.alike == (("a", "c", "d"),)


def test_what_a_rehearsal_shows_of_one_board_holds_for_those_alike_unless_it_is_odd(
    tmp_path: Path,
) -> None:
    cluster = cluster_of_boards(tmp_path, FOUR)
    facts = facts_of(cluster, {"a": 1.0, "b": 1.1, "c": 1.05, "d": 1.02})
    planner = Planner(cluster, read_model(cluster), facts=facts)
    problem = planner.problem()
    names = [layer.name for layer in problem.network.layers]
    dealt = {name: "abc"[min(2, 3 * number // len(names))] for number, name in enumerate(names)}
    plan = plan_solution(problem, Solution(dealt, ""), "sequential")

    def took(**factors: float) -> dict[str, Deployed]:
        own = {
            name: tuple(factor * phase.predicted_s for phase in plan.phases if phase.device == name)
            for name, factor in factors.items()
        }
        return {name: Deployed(1, seconds, 1) for name, seconds in own.items()}

    even = planner.after(plan, took(a=1.1, b=0.95, c=1.05)).problem()
    assert even.layer_s is not None
    assert even.layer_s == pytest.approx(even.layer_s[:, :1].repeat(4, axis=1), rel=1e-6)
    again = plan_solution(even, Solution(dealt, ""), "sequential")
    assert again.period_s == pytest.approx(plan.period_s, rel=0.2)
    odd = planner.after(plan, took(a=1.0, b=1.0, c=4.0)).problem()
    assert odd.layer_s is not None
    a, b, c, d = odd.layer_s.sum(axis=0)
    assert a == pytest.approx(b, rel=1e-6) == d
    assert c > 2 * a
