"""A plan is a chain if each board reads just what the one before it makes."""

import json
from pathlib import Path

import pytest

from benchmarks.peers.chain import chain_of
from benchmarks.peers.stages.session import read_stage
from cnn.network import Layer, Network, Tensor
from launcher.errors import BadInputError
from launcher.run.runtime import SubnetFiles
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan


def network(*layers: tuple[str, tuple[str, ...], tuple[str, ...]], outputs: tuple[str, ...]):
    names = {"in", *(name for _, _, made in layers for name in made)}
    return Network(
        name="net",
        layers=tuple(Layer(name, "Relu", read, made, macs=8) for name, read, made in layers),
        tensors={name: Tensor(name, (1, 4), "float32") for name in names},
        weights={},
        inputs=("in",),
        outputs=outputs,
    )


THREE = network(
    ("a", ("in",), ("x", "y")),
    ("b", ("y", "x"), ("z",)),
    ("c", ("z",), ("out",)),
    outputs=("out",),
)


def planned(network: Network, **assignment: str) -> Plan:
    devices = [Device(name) for name in sorted(set(assignment.values()))]
    return make_plan(network, "0", devices, assignment, strategy="by-hand", explanation="")


def chained(network: Network, plan: Plan):
    subnets = {phase.name: SubnetFiles(Path(f"{phase.device}.onnx"), None) for phase in plan.phases}
    return chain_of(plan, subnets, network.inputs, network.outputs)


def test_parts_follow_the_frames_whatever_order_the_plan_has():
    chain = chained(THREE, planned(THREE, a="n2", b="n0", c="n1"))
    assert [part.device for part in chain.parts] == ["n2", "n0", "n1"]


def test_a_part_reads_tensors_in_the_order_in_which_the_one_before_sends_them():
    chain = chained(THREE, planned(THREE, a="n0", b="n1", c="n2"))
    for one, following in zip(chain.parts, chain.parts[1:], strict=False):
        assert one.outputs == following.inputs
    assert {tensor.name for tensor in chain.parts[1].inputs} == {"x", "y"}


def test_what_is_written_is_what_a_stage_reads(tmp_path):
    chain = chained(THREE, planned(THREE, a="n0", b="n1", c="n2"))
    chain.write(tmp_path / "chain.json")
    graph, inputs, outputs = read_stage(tmp_path / "chain.json", 2)
    assert graph == Path("n2.onnx")
    assert json.loads(json.dumps([inputs, outputs])) == [
        [["z", "float32", [1, 4]]],
        [["out", "float32", [1, 4]]],
    ]


def test_a_board_with_two_phases_is_no_stage():
    with pytest.raises(BadInputError, match=r"several phases.*contiguous strategy"):
        chained(THREE, planned(THREE, a="n0", b="n1", c="n0"))


def test_a_tensor_that_skips_a_stage_is_refused():
    skipping = network(
        ("a", ("in",), ("x", "y")),
        ("b", ("x",), ("z",)),
        ("c", ("z", "y"), ("out",)),
        outputs=("out",),
    )
    with pytest.raises(BadInputError, match="skips a stage"):
        chained(skipping, planned(skipping, a="n0", b="n1", c="n2"))


def test_a_result_that_is_there_before_the_last_stage_is_refused():
    early = network(
        ("a", ("in",), ("x",)),
        ("b", ("x",), ("out",)),
        outputs=("x", "out"),
    )
    with pytest.raises(BadInputError, match="before the last stage"):
        chained(early, planned(early, a="n0", b="n1"))
