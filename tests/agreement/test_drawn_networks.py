"""Some of the networks that `make agreement` draws, on every run of the tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from cnn.operators.bodies import every_node
from tests.agreement.drawn.check import Outcome, check
from tests.agreement.drawn.network import Drawn, draw
from tests.agreement.drawn.planned import planned
from tests.agreement.drawn.pool import check_bodies, checked
from tests.agreement.drawn.shrinking import up_to
from tests.agreement.drawn.sketch import Tensor
from tests.agreement.random_networks import MOST_SKIPPED, is_good, summary

NETWORKS = 40
BODIES = 12
MANY, PLANNED = 30, 4


def of_kind(outcomes: list[Outcome], kind: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.kind == kind]


def right(outcomes: list[Outcome]) -> bool:
    assert of_kind(outcomes, "disagrees") == []
    assert of_kind(outcomes, "fails") == []
    assert len(of_kind(outcomes, "skipped")) <= MOST_SKIPPED * len(outcomes)
    return is_good(outcomes)


def test_drawn_networks_compute_what_their_files_do(tmp_path: Path) -> None:
    assert right([check(draw(seed), tmp_path / str(seed)) for seed in range(NETWORKS)])


def test_a_fused_layer_norm_that_is_less_exact_is_not_refused(tmp_path: Path) -> None:
    assert right([check(draw(6172), tmp_path)])


def test_networks_with_bodies_do_as_agents_prepare_them(tmp_path: Path) -> None:
    """The one of seed 10 has half precision in bodies, which is not even loaded again unoptimised.

    ONNX's inference gives up on bodies in bodies of that of seed 43.
    """
    drawn = [draw(seed, with_bodies=True) for seed in (*range(BODIES), 43)]
    assert right([check(x, tmp_path / str(x.seed), prepared=True) for x in drawn])
    used = {node.op_type for x in drawn for node in every_node(x.model.graph.node)}
    assert used >= {"If", "Loop", "Scan"}


@pytest.mark.slow
def test_many_networks_with_bodies_do_in_several_processes() -> None:
    outcomes = list(checked(range(BODIES, BODIES + MANY), workers=2, work=check_bodies))
    assert right(outcomes)


@pytest.mark.slow
def test_many_networks_do_in_several_processes() -> None:
    seeds = range(NETWORKS, NETWORKS + MANY)
    outcomes = list(checked(seeds, workers=2))
    assert sorted(outcome.seed for outcome in outcomes) == list(seeds)
    assert right(outcomes)


@pytest.mark.usefixtures("quick_searches")
def test_strategies_divide_networks_that_compute_the_same(tmp_path: Path) -> None:
    outcomes = [check(draw(s), tmp_path / str(s), divide=planned) for s in range(PLANNED)]
    assert right(outcomes)


def test_a_seed_draws_the_same_network_again() -> None:
    assert draw(5).model.SerializeToString() == draw(5).model.SerializeToString()
    assert draw(5).model.SerializeToString() != draw(6).model.SerializeToString()


def test_a_network_can_be_cut_down_to_what_one_tensor_depends_on(tmp_path: Path) -> None:
    drawn = draw(4)
    name = drawn.model.graph.node[-1].output[0]
    part = up_to(drawn, name)
    assert [value.name for value in part.model.graph.output] == [name]
    assert len(part.model.graph.node) <= len(drawn.model.graph.node)
    assert check(part, tmp_path).kind == "agrees"


def test_a_wrong_network_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simplification that leaves out a bias, say."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "wrong (float[1, 2, 4, 4] x0) => (float[1, 2, 4, 4] y)"
        "<float[2, 1, 1] b = {0.5, -0.5}> { t = Relu(x0) y = Add(t, b) }"
    )
    wrong = Drawn(
        0, model, {"x0": Tensor((1, 2, 4, 4), "float32")}, half=False, types={}, idioms=()
    )
    assert check(wrong, tmp_path / "right").kind == "agrees"

    def without_bias(graph: object, node: onnx.NodeProto) -> int | None:
        return 0 if node.op_type == "Add" else None

    monkeypatch.setattr("cnn.simplify.redundant._unchanged_input", without_bias)
    assert check(wrong, tmp_path / "wrong").kind == "disagrees"


def crash_at_one(seed: int, folder: Path, tell: Callable[[str], None]) -> Outcome:
    tell("ours")
    if seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return Outcome(seed, "agrees")


@pytest.mark.slow
def test_an_engine_that_crashes_is_reported_with_its_seed_and_the_others_continue() -> None:
    outcomes = {outcome.seed: outcome for outcome in checked(range(4), 2, crash_at_one)}
    assert sorted(outcomes) == [0, 1, 2, 3]
    assert outcomes[1].kind == "fails"
    assert outcomes[1].reason == f"the process ended with {-signal.SIGSEGV} at ours"
    assert {outcomes[seed].kind for seed in (0, 2, 3)} == {"agrees"}


def test_the_summary_says_what_became_of_networks() -> None:
    outcomes = [Outcome(0, "agrees", rules=("precision",)), Outcome(1, "refused", "of a reason")]
    lines = summary(outcomes, 2.0)
    assert lines[0] == "2 networks in 2 s: 1 agrees, 1 refused"
    assert "  refused: 1 for of a reason" in lines
