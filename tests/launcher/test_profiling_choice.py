"""The last choice: which plans are measured, what decides, and what it holds for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cnn.model import Model, read
from ga.auto import Auto
from launcher.config.load import load_cluster
from launcher.plan.devices import devices_of
from launcher.plan.planner import Planner
from launcher.plan.profile.choice import (
    Decided,
    MeasuredPlans,
    candidates,
    made_for,
    measured_plan,
    ranked,
    shape,
)
from launcher.plan.profile.file import (
    NodeEntry,
    NodeIdentity,
    NodeTimes,
    ProfileFile,
    write_atomically,
)
from launcher.plan.profile.links import node_part
from launcher.plan.profile.use import profile_file
from launcher.progress import open_progress
from partition.errors import PartitionError
from partition.measured.profiles import NodeProfile, Profile
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution
from partition.strategies.batch_split import BatchSplit
from partition.strategies.contiguous.sequential import Sequential
from tests.launcher.models import write_branches

HERE = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: auto\n"
KINDS = {"a": "one", "b": "another"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(HERE)
    return tmp_path


def posed(folder: Path, **changes: object) -> tuple[Model, Problem]:
    cluster = load_cluster(folder / "cluster.yaml").changed(**changes)
    model = read(folder / "branches.onnx")
    return model, Planner(cluster, model).problem(measured=Profile({}))


class Fixed:
    """A strategy that has found what it is given."""

    name = "auto"

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def solve(self, problem: Problem) -> Solution:
        return self._solution


def everything_on(problem: Problem, device: str) -> Solution:
    return Solution({layer.name: device for layer in problem.network.layers}, f"all on {device}")


def test_candidates_are_the_strategys_own_and_what_it_was_compared_with(folder: Path) -> None:
    _, problem = posed(folder)
    auto = Auto((Sequential(), BatchSplit()), splitting=Sequential())
    found = candidates(problem, auto, KINDS)
    assert len(found) >= 2
    assert len({shape(plan, KINDS) for plan in found}) == len(found)
    own = auto.solve(problem)
    assert dict(found[0].assignment) == dict(own.assignment)
    assert {len(set(plan.assignment.values())) for plan in found} == {1, 2}
    assert {bool(plan.rewrites) for plan in found} == {False, True}


def test_devices_of_one_kind_give_one_shape(folder: Path) -> None:
    _, problem = posed(folder)
    both = replace(everything_on(problem, "a"), others=(everything_on(problem, "b"),))
    assert len(candidates(problem, Fixed(both), KINDS)) == 2
    assert len(candidates(problem, Fixed(both), {"a": 1, "b": 1})) == 1


def test_what_is_proved_is_not_overruled(folder: Path) -> None:
    _, problem = posed(folder)
    proved = replace(
        everything_on(problem, "a"), optimal=True, others=(everything_on(problem, "b"),)
    )
    (found,) = candidates(problem, Fixed(proved), KINDS)
    assert set(found.assignment.values()) == {"a"}


def test_candidates_that_give_no_plan_are_left_out(folder: Path) -> None:
    _, problem = posed(folder)
    wrong = Solution({"stem": "a"}, "not every layer")
    both = replace(everything_on(problem, "a"), others=(wrong,))
    assert len(candidates(problem, Fixed(both), KINDS)) == 1


def plan_of(problem: Problem, solution: Solution) -> Plan:
    return plan_solution(problem, solution, "auto")


def test_the_shorter_period_is_ranked_first_where_all_else_is_equal(folder: Path) -> None:
    _, problem = posed(folder)
    slow = plan_of(problem, everything_on(problem, "a"))
    fast = replace(slow, period_s=slow.period_s / 2)
    assert ranked(problem, [slow, fast]) == [fast, slow]


def choice_for(folder: Path, problem: Problem, **nodes: str) -> MeasuredPlans:
    """A choice of everything on `b`, before everything on `a`."""
    devices = devices_of(load_cluster(folder / "cluster.yaml"))
    plans = [plan_of(problem, everything_on(problem, device)) for device in ("b", "a")]
    measured = tuple(measured_plan(plan, plan.period_s) for plan in plans)
    return MeasuredPlans(
        made_for=made_for(problem, "auto", devices, {}), strategy="auto", plans=measured
    )


def profile_with(folder: Path, choice: MeasuredPlans | None, layers: Mapping[str, float]) -> Path:
    cluster = load_cluster(folder / "cluster.yaml")
    model = read(folder / "branches.onnx")
    nodes = {}
    for node in cluster.config.nodes:
        known = node_part(node).model_dump()
        identity = NodeIdentity(**known, machine="pc", cores=2, engine="E", version="1")
        nodes[node.name] = NodeEntry(
            identity=identity, measured=NodeTimes.of(NodeProfile(dict(layers)))
        )
    path = folder / "profile.json"
    file = ProfileFile(
        model="branches", model_digest=model.digest, energy="", nodes=nodes, choice=choice
    )
    write_atomically(path, file)
    return path


def test_the_choice_of_a_profile_is_the_plan_of_the_same_problem_only(folder: Path) -> None:
    model, problem = posed(folder)
    layers = {layer.name: 1e-3 for layer in model.network.layers}
    path = profile_with(folder, choice_for(folder, problem), layers)
    cluster = load_cluster(folder / "cluster.yaml").changed(profile=str(path))
    file = profile_file(cluster, model)
    planner = Planner(cluster, model, file)
    assert isinstance(planner.strategy(problem, "auto"), Decided)
    with open_progress() as progress:
        plan = planner.plan(progress)
    assert set(plan.assignment.values()) == {"b"}
    assert "chosen among 2 plans whose subnets were measured" in plan.explanation
    assert planner.strategy(problem, "sequential").name == "sequential"
    for changes in (
        {"objective": "memory"},
        {"seed": 7},
        {"pins": {"stem": "a"}},
        {"slack_frames": 3},
    ):
        _, other = posed(folder, **changes)
        assert not isinstance(planner.strategy(other, "auto"), Decided)


def test_a_choice_is_for_the_nodes_as_they_were_described(folder: Path) -> None:
    model, problem = posed(folder)
    path = profile_with(folder, choice_for(folder, problem), {})
    (folder / "cluster.yaml").write_text(HERE.replace("name: a", "name: a\n    memory: 512MB"))
    cluster = load_cluster(folder / "cluster.yaml").changed(profile=str(path))
    file = profile_file(cluster, model)
    assert not isinstance(Planner(cluster, model, file).strategy(problem, "auto"), Decided)


def test_a_choice_of_layers_that_there_are_not_is_refused(folder: Path) -> None:
    _, problem = posed(folder)
    choice = choice_for(folder, problem)
    other = choice.plans[0].model_copy(update={"assignment": {"stem": "a"}})
    broken = choice.model_copy(update={"plans": (other,)})
    with pytest.raises(PartitionError, match="other layers than the model; measure again"):
        Decided(broken).solve(problem)
    wrong = choice.plans[0].model_copy(update={"rewrites": ({"slices": "none", "channels": [1]},)})
    with pytest.raises(PartitionError, match="cannot be made any more"):
        Decided(choice.model_copy(update={"plans": (wrong,)})).solve(problem)
