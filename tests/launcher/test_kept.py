"""Plans that were found, and what nodes have measured in rehearsals, serve later runs."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cnn.model import Model, read
from ga.auto import ALONE_MARGIN
from launcher.config.load import Cluster, load_cluster
from launcher.plan import planner as planning
from launcher.plan.devices import Facts
from launcher.plan.planner import Planner
from launcher.plan.profile import file as profile_file
from launcher.plan.profile.choice import Decided
from launcher.plan.profile.file import NodeTimes, ProfileCache, ProfileFile
from launcher.plan.profile.links import identities
from launcher.progress import LineDisplay
from nodes.protocol.messages import PROTOCOL, BoardFigures, Deployed, Welcome
from partition.alone import plan_alone
from partition.errors import PartitionError
from partition.measured.profiles import CHANGED
from partition.plan import Plan
from partition.planner import foreseen_plan
from partition.strategies.base import Problem, Solution
from tests.launcher.models import write_branches
from tests.launcher.test_boards import FIGURES

NODES = "nodes: [{name: a}, {name: b}]\n"
FOUND = "; found by an earlier search"
SILENT = LineDisplay(io.StringIO())
PORTS = {"a": 5500, "b": 5600}


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return read(write_branches(tmp_path / "branches.onnx"))


def cluster_of(folder: Path, more: str = "") -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(f"model: branches.onnx\n{NODES}strategy: sequential\n{more}")
    return load_cluster(path)


def planner_of(folder: Path, model: Model, more: str = "") -> Planner:
    return Planner(cluster_of(folder, more), model, store=ProfileCache(folder / "cache"))


def kept_by(planner: Planner, progress: LineDisplay) -> Plan:
    plan = planner.plan(progress)
    planner.keep(planner.problem(), plan)
    return plan


def rehearsed(plan: Plan, factor: float) -> dict[str, Deployed]:
    """Return the rehearsal of nodes that take the given multiples of their planned times."""
    found: dict[str, tuple[float, ...]] = {}
    for phase in sorted(plan.phases, key=lambda phase: phase.index):
        found[phase.device] = (*found.get(phase.device, ()), factor * phase.predicted_s)
    return {node: Deployed(1, seconds, 1) for node, seconds in found.items()}


def is_found(planner: Planner, progress: LineDisplay) -> bool:
    """Whether a plan is found without a search."""
    return planner.plan(progress).explanation.endswith(FOUND)


def test_a_plan_that_was_found_is_used_again(tmp_path: Path, model: Model) -> None:
    said = io.StringIO()
    progress = LineDisplay(said)
    planner = planner_of(tmp_path, model)
    plan = kept_by(planner, progress)
    again = planner.plan(progress)
    assert again.assignment == plan.assignment
    assert again.explanation == plan.explanation + FOUND
    assert "--search again" in said.getvalue()


def test_a_plan_that_was_slower_than_planned_competes_with_what_a_search_finds(
    tmp_path: Path, model: Model
) -> None:
    (tmp_path / "cluster.yaml").write_text(f"model: branches.onnx\n{NODES}")
    auto, store = load_cluster(tmp_path / "cluster.yaml"), ProfileCache(tmp_path / "cache")
    planner = Planner(auto, model, store=store, hurries=True)
    plan, problem = planner.plan(SILENT), planner.problem()
    slower, faster = (
        known.made_again(known.problem(), plan)
        for known in (planner.after(plan, rehearsed(plan, factor)) for factor in (5.0, 0.2))
    )
    assert planner.streamed_before(problem, SILENT, slower) is None, "there was no run"
    planner.keep(problem, plan, as_planned=False)
    assert not planner.plan(SILENT).explanation.endswith(planning.MADE_EARLIER)
    earlier = planner.streamed_before(problem, SILENT, slower)
    assert earlier is not None
    assert earlier.plan.assignment == plan.assignment
    assert planner.streamed_before(problem, SILENT, faster) is None
    again = replace(planner, searches_again=True)
    assert again.streamed_before(problem, SILENT, slower) is None
    planner.keep(problem, plan)
    assert planner.plan(SILENT).explanation.endswith(planning.MADE_EARLIER)


def test_it_is_not_used_by_those_who_search_again(tmp_path: Path, model: Model) -> None:
    planner = planner_of(tmp_path, model)
    kept_by(planner, SILENT)
    assert not is_found(replace(planner, searches_again=True), SILENT)


@pytest.mark.parametrize(
    "more", ["seed: 7\n", "objective: memory\n", "pins: {stem: a}\n", "slack_frames: 3\n"]
)
def test_it_is_for_the_same_question_only(tmp_path: Path, model: Model, more: str) -> None:
    kept_by(planner_of(tmp_path, model), SILENT)
    assert not is_found(planner_of(tmp_path, model, more), SILENT)


def test_it_is_for_the_same_nodes_only(tmp_path: Path, model: Model) -> None:
    planner = planner_of(tmp_path, model)
    kept_by(planner, SILENT)
    assert not planner.plan(SILENT, ["a"]).explanation.endswith(FOUND)


def test_it_is_found_whatever_memory_the_agents_report_today(tmp_path: Path, model: Model) -> None:
    planner = planner_of(tmp_path, model)
    kept_by(replace(planner, facts=Facts(memory={"a": 10**9})), SILENT)
    assert is_found(planner, SILENT)
    full = replace(planner, facts=Facts(memory=dict.fromkeys("ab", 10**9)))
    assert is_found(full, SILENT)


@pytest.mark.parametrize(("factor", "is_used"), [(1.1, True), (2.0, False)])
def test_it_is_for_nodes_that_are_about_as_fast(
    tmp_path: Path, model: Model, factor: float, is_used: bool
) -> None:
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    kept_by(planner.after(plan, rehearsed(plan, 1.0)), SILENT)
    later = planner.after(plan, rehearsed(plan, factor))
    assert is_found(later, SILENT) is is_used


def test_a_damaged_entry_is_made_again(tmp_path: Path, model: Model) -> None:
    planner = planner_of(tmp_path, model)
    kept_by(planner, SILENT)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    assert not is_found(planner, SILENT)
    kept_by(planner, SILENT)
    assert is_found(planner, SILENT)


def test_a_plan_that_no_longer_fits_is_searched_again(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = planner_of(tmp_path, model)
    kept_by(planner, SILENT)

    def refuse(self: Decided, problem: Problem) -> Solution:
        raise PartitionError("this version reads it otherwise")

    monkeypatch.setattr(Decided, "solve", refuse)
    assert not is_found(planner, SILENT)


def test_what_takes_a_search_some_time_is_kept_and_nothing_else(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = planner_of(tmp_path, model)
    planner.plan(SILENT)
    assert not is_found(planner, SILENT)
    monkeypatch.setattr(planning, "WORTH_KEEPING_S", 0.0)
    replace(planner, hurries=True).plan(SILENT)
    assert not (tmp_path / "cache").exists()
    planner.plan(SILENT)
    assert is_found(planner, SILENT)


def test_the_cache_is_bounded(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_file, "MOST_KEPT", 3)
    for seed in range(6):
        kept_by(planner_of(tmp_path, model, f"seed: {seed}\n"), SILENT)
    assert len(list((tmp_path / "cache").iterdir())) == 3
    assert is_found(planner_of(tmp_path, model, "seed: 5\n"), SILENT)


def welcome(name: str) -> Welcome:
    return Welcome(PROTOCOL, name, "1", "tcp://x:1", "E", "machine", 4, 1)


def test_what_nodes_have_rehearsed_is_known_to_the_next_run(tmp_path: Path, model: Model) -> None:
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    first = plan.phases[0]
    welcomes = {first.device: welcome(first.device)}
    planner.remember(plan, rehearsed(plan, 50.0), welcomes)
    later = planner.remembering(welcomes)
    again = later.made_again(later.problem(), plan)
    assert again.phases[0].predicted_s == pytest.approx(50 * first.predicted_s)
    other = replace(welcome(first.device), machine="another")
    assert planner.remembering({first.device: other}).learned == {}


def test_two_agents_of_one_machine_are_known_apart(tmp_path: Path, model: Model) -> None:
    """One of them may have a quota, as containers have."""
    nodes = "".join(
        f"  - {{name: {n}, address: 'tcp://192.0.2.1:{p}'}}\n" for n, p in PORTS.items()
    )
    path = tmp_path / "cluster.yaml"
    path.write_text(f"model: branches.onnx\nnodes:\n{nodes}strategy: sequential\n")
    planner = Planner(load_cluster(path), model, store=ProfileCache(tmp_path / "cache"))
    welcomes = {name: welcome(name) for name in PORTS}
    factors = {"a": 50.0, "b": 1.0}
    plans = {name: planner.plan(SILENT, [name]) for name in PORTS}
    for name, plan in plans.items():
        planner.remember(plan, rehearsed(plan, factors[name]), welcomes)
    later = planner.remembering(welcomes)
    for name, plan in plans.items():
        again = later.made_again(later.problem([name]), plan)
        expected = factors[name] * plan.phases[0].predicted_s
        assert again.phases[0].predicted_s == pytest.approx(expected)


def test_a_rehearsal_adds_to_what_was_profiled_unless_the_node_has_changed(
    tmp_path: Path, model: Model
) -> None:
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    welcomes = {phase.device: welcome(phase.device) for phase in plan.phases}
    layer_s = {layer.name: 1e-3 for layer in model.network.layers}
    for who in identities(planner.nodes, welcomes).values():
        ProfileCache(tmp_path / "cache").keep_node(model.digest, who, NodeTimes(layer_s=layer_s))
    for factor, expected in ((50.0, layer_s), (60.0, layer_s), (20.0, {})):
        planner.remember(plan, rehearsed(plan, factor), welcomes)
        learned = planner.remembering(welcomes).learned
        assert [each.layer_s for each in learned.values()] == [expected] * len(welcomes)


@pytest.mark.parametrize(("factor", "is_used"), [(1.3, True), (1.7, False), (0.5, False)])
def test_times_are_not_used_once_the_board_reports_another_speed(
    tmp_path: Path, model: Model, factor: float, is_used: bool
) -> None:
    """As after a change of its quota or its power mode."""
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    welcomes = {phase.device: welcome(phase.device) for phase in plan.phases}

    def with_board(factor: float) -> Planner:
        board = BoardFigures(1, *[factor * 1e-11] * 4, *[1e-11] * 7)
        return replace(planner, facts=Facts(figures=dict.fromkeys(welcomes, board)))

    with_board(1.0).remember(plan, rehearsed(plan, 50.0), welcomes)
    assert with_board(factor).remembering(welcomes).learned.keys() == (
        welcomes.keys() if is_used else set()
    )
    with_board(factor).remember(plan, rehearsed(plan, 50.0), welcomes)
    assert with_board(factor).remembering(welcomes).learned.keys() == welcomes.keys()


def test_a_plan_of_another_strategy_is_not_kept_as_that_of_the_cluster(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a loss, when a quick strategy replaces the user's."""
    monkeypatch.setattr(planning, "WORTH_KEEPING_S", 0.0)
    planner = planner_of(tmp_path, model)
    planner.plan(SILENT, strategy="sequential-balanced")
    assert not (tmp_path / "cache").exists()


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.floats(-4, 4).map(math.exp))
@example(1.0)
def test_a_board_that_has_become_faster_or_slower_is_planned_again(
    tmp_path: Path, model: Model, slower: float
) -> None:
    """By its own figures: its quota or its power mode may be another."""
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    node = plan.phases[0].device
    before = Facts(figures={node: FIGURES})
    changed = replace(FIGURES, dense_s_per_mac=FIGURES.dense_s_per_mac * slower)
    welcomes, said = {node: welcome(node)}, list[str]()
    replace(planner, facts=before).remember(plan, rehearsed(plan, 2.0), welcomes)
    later = replace(planner, facts=Facts(figures={node: changed}))
    is_known = node in later.remembering(welcomes, said.append).learned
    assert is_known is (1 / CHANGED < slower < CHANGED)
    assert len(said) == (not is_known)
    assert all(f"node {node} has become" in text for text in said)
    assert node in planner.remembering(welcomes).learned, "a board that has no figures now"


@pytest.mark.usefixtures("quick_searches")
def test_a_kept_plan_that_one_node_alone_beats_by_now_is_searched_again(
    tmp_path: Path, model: Model
) -> None:
    planner = planner_of(tmp_path, model)
    planner = replace(planner, cluster=planner.cluster.changed(strategy="auto"))
    problem = planner.problem()
    back_and_forth = {layer.name: "ab"[n % 2] for n, layer in enumerate(model.network.layers)}
    plan = foreseen_plan(problem, Solution(back_and_forth, "back and forth"), "auto")
    planner.keep(problem, plan)
    alone = plan_alone(problem)
    assert alone.period_s < plan.period_s / (1 + ALONE_MARGIN), "the network is tiny"
    found = planner.plan(SILENT)
    assert not found.explanation.endswith(FOUND)
    assert found.period_s <= alone.period_s * (1 + ALONE_MARGIN)


def test_a_speed_that_the_user_states_counts_more_than_rehearsals(
    tmp_path: Path, model: Model
) -> None:
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    welcomes = {phase.device: welcome(phase.device) for phase in plan.phases}
    planner.remember(plan, rehearsed(plan, 50.0), welcomes)
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes: [{name: a, macs_per_s: 1G}, {name: b, macs_per_s: 1G}]\n"
    )
    stated = replace(planner, cluster=load_cluster(tmp_path / "cluster.yaml"))
    assert stated.remembering(welcomes).learned == {}


def test_a_profile_that_the_user_names_counts_more_than_rehearsals(
    tmp_path: Path, model: Model
) -> None:
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    welcomes = {phase.device: welcome(phase.device) for phase in plan.phases}
    planner.remember(plan, rehearsed(plan, 50.0), welcomes)
    empty = ProfileFile(model="branches", model_digest=model.digest, energy="", nodes={})
    assert replace(planner, file=empty).remembering(welcomes).learned == {}


def as_a_folder(path: Path) -> None:
    path.unlink()
    (path / "full").mkdir(parents=True)


def as_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def as_an_endless_file(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def nested_deeply(path: Path) -> None:
    path.write_text("[" * 1_000_000)


def with_other_layers(path: Path) -> None:
    """As another version may have read the model."""
    data = json.loads(path.read_text())
    if "choice" in data:
        data["choice"]["plans"][0]["assignment"] = {"other": "a"}
    else:
        data["subnets"][0]["layers"] = ["other"]
    path.write_text(json.dumps(data))


def with_some_layers(path: Path) -> None:
    data = json.loads(path.read_text())
    data["layer_s" if "layer_s" in data else "facts"] = {"stem": 1.0}
    path.write_text(json.dumps(data))


def with_times_beyond_sums(path: Path) -> None:
    data = json.loads(path.read_text())
    for subnet in data.get("subnets", ()):
        subnet["seconds"] = 1e308
    data["message_s" if "subnets" in data else "facts"] = 1e308
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "damaged",
    [
        as_a_folder,
        as_a_pipe,
        as_a_link_to_itself,
        as_an_endless_file,
        nested_deeply,
        with_other_layers,
        with_some_layers,
        with_times_beyond_sums,
    ],
)
def test_whatever_lies_in_the_cache_plans_are_made(
    tmp_path: Path, model: Model, damaged: Callable[[Path], None]
) -> None:
    planner = planner_of(tmp_path, model)
    plan = kept_by(planner, SILENT)
    welcomes = {node: welcome(node) for node in "ab"}
    measured = rehearsed(plan, 2.0)
    planner.remember(plan, measured, welcomes)
    for path in (tmp_path / "cache").iterdir():
        damaged(path)
    later = planner.remembering(welcomes)
    assert later.learned == {}
    again = kept_by(later, SILENT)
    later.remember(again, measured, welcomes)
    assert again.assignment == plan.assignment
    assert not again.explanation.endswith(FOUND)


def test_other_files_stay_in_a_full_cache(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_file, "MOST_KEPT", 1)
    folder = tmp_path / "cache" / "old.json"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    planner = planner_of(tmp_path, model)
    kept_by(planner, SILENT)
    assert is_found(planner, SILENT)
    assert folder.is_dir()


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e12])
def test_whatever_an_agent_tells_of_its_rehearsal_plans_are_made(
    tmp_path: Path, model: Model, seconds: float
) -> None:
    """Of times that the protocol allows."""
    planner = planner_of(tmp_path, model)
    plan = planner.plan(SILENT)
    measured = {
        node: replace(each, phase_s=(seconds,) * len(each.phase_s), message_s=seconds)
        for node, each in rehearsed(plan, 1.0).items()
    }
    welcomes = {node: welcome(node) for node in measured}
    planner.remember(plan, measured, welcomes)
    kept_by(planner.remembering(welcomes), SILENT)
    kept_by(planner.after(plan, measured).after(plan, rehearsed(plan, 1.0)), SILENT)
