"""Channels in blocks of channels, in the agent: which deployments it takes, and what it loads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodes.core.deployment import DeploymentError, borders_in_blocks, check
from nodes.protocol.messages import HOST, ChannelSpec, Deployment, PeerSpec, PhaseSpec
from tests.nodes.lone_core import BLOB

SHAPE = (1, 32, 4, 4)
READ = ChannelSpec(0, "x", "float32", SHAPE, "a", 0, "n", (0,), 2, block=16)
MADE = ChannelSpec(1, "y", "float32", SHAPE, "n", 0, "b", (0,), 2, block=16)
INNER = ChannelSpec(2, "y", "float32", SHAPE, "n", 0, "n", (1,), 2, block=16)
RESULT = ChannelSpec(3, "z", "float32", SHAPE, "n", 1, HOST, (), 2)


def deployment(*channels: ChannelSpec) -> Deployment:
    """x → p → y → q → z on node n; y goes to node b, too."""
    phases = PhaseSpec("p", BLOB, None, ("x",), ("y",)), PhaseSpec("q", BLOB, None, ("y",), ("z",))
    return Deployment(7, "n", "pipelined", phases, channels, (PeerSpec("b", "tcp://b:1"),))


def test_phases_are_loaded_with_the_borders_that_are_in_blocks() -> None:
    planned = deployment(READ, MADE, INNER, RESULT)
    check(planned)
    assert borders_in_blocks(planned) == (16, (("x", "y"), ("y",)))
    usual = deployment(*(replace(each, block=1) for each in planned.channels))
    assert borders_in_blocks(usual) == (1, ((), ()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "int32"}, "only float32 tensors"),
        ({"encoding": "fp16"}, "without encoding"),
        ({"shape": (1, 24, 4, 4)}, "does not divide into blocks"),
        ({"shape": (1, 32, 16)}, "does not divide into blocks"),
        ({"source_node": HOST, "source_phase": None}, "the launcher exchanges"),
        ({"block": 8}, "in blocks of 8 and of 16 channels"),
    ],
)
def test_what_cannot_be_in_blocks_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(DeploymentError, match=why):
        check(deployment(replace(READ, **change), MADE, INNER, RESULT))


def test_one_tensor_has_one_order() -> None:
    with pytest.raises(DeploymentError, match="also needed in another order"):
        check(deployment(READ, MADE, replace(INNER, block=1), RESULT))


def test_state_that_a_phase_keeps_is_in_the_usual_order() -> None:
    phases = (PhaseSpec("p", BLOB, None, ("x", "h"), ("y",)),)
    state = ChannelSpec(
        4, "h", "float32", SHAPE, HOST, None, "n", (0,), 1, kept_from="y"
    )  # fmt: skip
    planned = replace(deployment(READ, MADE, state), phases=phases)
    with pytest.raises(DeploymentError, match="also needed in another order"):
        check(planned)
    check(replace(planned, channels=(READ, replace(MADE, block=1), state)))
