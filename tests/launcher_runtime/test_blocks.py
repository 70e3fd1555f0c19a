"""Which channels of a deployment are in blocks of channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cnn.network import Tensor
from launcher.core.blueprint import Blueprint
from launcher.core.session import Session, blocks_of
from launcher.run.deployment import blueprint
from nodes.core.deployment import check
from nodes.protocol.messages import (
    HOST,
    DeviceOffer,
    EngineChoice,
    EngineOffer,
    Welcome,
)
from partition.plan import PlannedChannel
from tests.launcher_runtime.plans import EPOCH, phase, plan_of, subnets_of

ALL_16 = {"n0": 16, "n1": 16, "n2": 16}


def channel(name: str, source: str, target: str, *, channels: int = 32) -> PlannedChannel:
    """A tensor [1, channels, 8, 8] from phase pI of node nI, or the user, to another."""
    tensor = Tensor(name, (1, channels, 8, 8), "float32")
    ends = [(HOST, "@source" if place is source else "@sink") if place == "user" else
            (place.replace("p", "n"), place) for place in (source, target)]  # fmt: skip
    (source_node, made), (target_node, read) = ends
    return PlannedChannel(tensor, made, source_node, target_node, (read,), 2)


def planned(*more: PlannedChannel, channels: int = 32) -> Blueprint:
    """x → p0 → a → p1 → b → p2 → y, one phase per node, whose inner tensors may be in blocks."""
    phases = [
        phase("p0", "n0", 0, ["x"], ["a"]),
        phase("p1", "n1", 0, ["a"], ["b"]),
        phase("p2", "n2", 0, ["b", *(c.tensor.name for c in more if "p2" in c.targets)], ["y"]),
    ]
    plan = plan_of(
        phases,
        [
            channel("x", "user", "p0"),
            channel("a", "p0", "p1", channels=channels),
            channel("b", "p1", "p2"),
            channel("y", "p2", "user"),
            *more,
        ],
    )
    subnets = {
        name: replace(each, in_blocks=frozenset("xaby")) for name, each in subnets_of(plan).items()
    }
    return blueprint(plan, subnets, {}, EPOCH, "pipelined")


def in_blocks(blueprint: Blueprint, blocks: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """(tensor, target) → channels per block, of the channels that are in blocks at both ends."""
    found = blueprint.in_blocks(blocks)
    addresses = {node: f"tcp://{node}:1" for node in found.deployments}
    for deployment in found.addressed(addresses).values():
        check(deployment)
    sides: dict[tuple[str, str], set[int]] = {}
    for deployment in found.deployments.values():
        for each in deployment.channels:
            sides.setdefault((each.tensor, each.target_node), set()).add(each.block)
    assert all(len(blocks) == 1 for blocks in sides.values()), "both ends agree"
    return {key: block for key, (block,) in sides.items() if block > 1}


def test_channels_between_nodes_of_one_kind_are_in_blocks_and_the_launchers_are_not() -> None:
    assert in_blocks(planned(), ALL_16) == {("a", "n1"): 16, ("b", "n2"): 16}


def test_each_pair_of_nodes_needs_the_same_blocks() -> None:
    assert in_blocks(planned(), {**ALL_16, "n2": 8}) == {("a", "n1"): 16}
    assert in_blocks(planned(), {"n0": 8, "n1": 16, "n2": 8}) == {}
    assert in_blocks(planned(), {"n1": 16, "n2": 16}) == {("b", "n2"): 16}


def test_channels_must_fill_their_blocks() -> None:
    assert in_blocks(planned(channels=24), ALL_16) == {("b", "n2"): 16}
    assert in_blocks(planned(channels=24), dict.fromkeys(ALL_16, 8)) == {
        ("a", "n1"): 8,
        ("b", "n2"): 8,
    }


@pytest.mark.parametrize("target", ["user", "p2"])
def test_a_tensor_that_one_reader_wants_in_the_usual_order_stays_in_it(target: str) -> None:
    blueprint = planned(channel("a", "p0", target))
    blocks = ALL_16 if target == "user" else {**ALL_16, "n2": 1}
    assert ("a", "n1") not in in_blocks(blueprint, blocks)


def test_encoded_tensors_stay_in_the_usual_order() -> None:
    blueprint = planned(replace(channel("a", "p0", "p2"), encoding="fp16"))
    assert in_blocks(blueprint, ALL_16) == {("b", "n2"): 16}


def test_what_subnets_do_not_compute_in_blocks_stays_in_the_usual_order() -> None:
    blueprint = replace(planned(), blockable=frozenset({2}))
    assert in_blocks(blueprint, ALL_16) == {("b", "n2"): 16}


def test_the_blocks_of_a_node_are_those_of_the_device_that_its_engine_computes_on() -> None:
    devices = DeviceOffer("gpu"), DeviceOffer("cpu", block=16)
    offers = EngineOffer("fast", devices=devices), EngineOffer("slow", devices=devices[1:])
    welcome = Welcome(9, "n", "", "", "", "", 1, 0, engines=offers)

    def block(choice: EngineChoice, answer: Welcome | None = welcome) -> dict[str, int]:
        return blocks_of([Session("n", "", False, welcome=answer, engine=choice)])

    assert block(EngineChoice()) == {"n": 1}
    assert block(EngineChoice(device="cpu")) == {"n": 16}
    assert block(EngineChoice(engine="slow")) == {"n": 16}
    assert block(EngineChoice(engine="none")) == {}
    assert block(EngineChoice(), None) == {}
