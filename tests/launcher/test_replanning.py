"""Another plan for the nodes that are left respects limits and pins, and is found soon."""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.config.load import Cluster, load_cluster
from launcher.core.events import PlanRequest, Rehearsed
from launcher.core.roll import Greeted, Roll
from launcher.errors import BadInputError, LauncherError
from launcher.plan.batch_size import QUICK
from launcher.plan.boards import with_boards
from launcher.plan.devices import NO_FACTS, devices_of
from launcher.plan.planner import Planner
from launcher.plan.profile.file import ProfileCache
from launcher.plan.replanning import (
    NotBetterError,
    Replanner,
    SearchLimit,
    TooLateError,
    UnwantedError,
)
from launcher.plan.settings import read_model
from launcher.progress import LineDisplay
from launcher.run.background import Background, IsWanted
from nodes.protocol.messages import PROTOCOL, Deployed, Welcome
from tests.launcher.models import write_branches

WITHOUT_SEARCH = """
import json, sys
from dataclasses import replace
from pathlib import Path

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("deap", "matplotlib", "optuna", "ortools", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Forbidden())
from launcher.config.load import load_cluster
from launcher.core.events import PlanRequest, Rehearsed
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model
from launcher.plan.replanning import Replanner

folder = Path(sys.argv[1])
cluster = load_cluster(folder / "cluster.yaml")
try:
    found = Replanner(Planner(cluster, read_model(cluster)), folder)(PlanRequest(1, ("a", "c")))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
subnets = [str(files.graph) for files in found.subnets.values()]
json.dump({"strategy": found.plan.strategy, "assignment": dict(found.plan.assignment),
           "subnets": subnets}, sys.stdout)
"""
"""Replans for nodes a and c where the packages of the search are not installed (extra `run`)."""


def replan_without_search(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SEARCH, str(folder)],
        env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def cluster_of(folder: Path, more: str = "", node: str = "{name: c}") -> Cluster:
    write_branches(folder / "branches.onnx")
    path = folder / "cluster.yaml"
    path.write_text(f"model: branches.onnx\nnodes: [{{name: a}}, {{name: b}}, {node}]\n{more}")
    return load_cluster(path)


def replanner(cluster: Cluster, folder: Path) -> Replanner:
    return Replanner(Planner(cluster, read_model(cluster)), folder)


def test_the_plan_is_for_the_nodes_that_are_left_with_its_subnets_cut(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    found = replanner(cluster, tmp_path / "subnets")(PlanRequest(1, ("a", "c")))
    plan, subnets = found.plan, found.subnets
    assert [device.name for device in plan.devices] == ["a", "c"]
    assert set(plan.assignment.values()) <= {"a", "c"}
    assert subnets.keys() == {phase.name for phase in plan.phases}
    assert all(files.graph.exists() for files in subnets.values())


def test_a_node_that_stands_by_has_a_part_only_once_it_is_needed(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n", "{name: c, standby: true}")
    assert [device.name for device in devices_of(cluster)] == ["a", "b"]
    plan = replanner(cluster, tmp_path / "subnets")(PlanRequest(1, ("c",))).plan
    assert set(plan.assignment.values()) == {"c"}


def test_a_search_that_takes_too_long_gives_way_to_a_quick_one(tmp_path: Path) -> None:
    more = "strategy: vertical\nrecovery: {recovery_s: 0.000001}\n"
    planner = replanner(cluster_of(tmp_path, more), tmp_path / "subnets")
    plan = planner(PlanRequest(1, ("a", "b"))).plan
    assert plan.strategy == QUICK


def test_no_frame_waits_for_a_search_that_takes_too_long(tmp_path: Path) -> None:
    more = "strategy: vertical\nrecovery: {recovery_s: 0.000001}\n"
    planner = replanner(cluster_of(tmp_path, more), tmp_path / "subnets")
    plan = planner(PlanRequest(1, ("a", "b"))).plan
    with pytest.raises(TooLateError, match="took too long"):
        planner(PlanRequest(2, ("a", "b"), 1, 1.05, effort="quick"), plan)


@pytest.mark.parametrize("strategy", ["vertical", "exact", "auto"])
def test_where_the_search_is_not_installed_a_quick_strategy_plans(
    tmp_path: Path, strategy: str
) -> None:
    cluster_of(tmp_path, f"strategy: {strategy}\n")
    ended = replan_without_search(tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["strategy"] == QUICK
    assert set(found["assignment"].values()) <= {"a", "c"}
    assert found["subnets"]
    assert all(Path(graph).exists() for graph in found["subnets"])


def test_once_the_run_is_over_nothing_is_searched_or_written(tmp_path: Path) -> None:
    planner = replanner(cluster_of(tmp_path, "strategy: sequential\n"), tmp_path / "gone")
    planner.close()
    with pytest.raises(UnwantedError):
        planner(PlanRequest(1, ("a", "c")))
    assert not (tmp_path / "gone").exists()


def test_a_search_under_way_breaks_off_once_nobody_wants_it() -> None:
    wanted = [True]
    limit = SearchLimit(float("inf"), lambda: wanted[0])
    limit.update("searching", 1, 2)
    wanted[0] = False
    with pytest.raises(UnwantedError):
        limit.update("searching", 2, 2)


def test_a_pin_to_a_lost_node_is_named(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "pins: {stem: b}\nstrategy: sequential\n")
    with pytest.raises(BadInputError) as failed:
        replanner(cluster, tmp_path / "subnets")(PlanRequest(1, ("a", "c")))
    assert str(failed.value) == (
        "layer 'stem' is pinned to node 'b', which is lost; without the pin another node could "
        "compute it"
    )


def test_a_memory_that_is_too_small_is_named_with_the_need(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n", "{name: c, memory: 1MB}")
    with pytest.raises(BadInputError, match=r"(?s)'c'.*MB"):
        replanner(cluster, tmp_path / "subnets")(PlanRequest(1, ("c",)))


def test_work_in_the_background_is_reported_by_a_descriptor_and_by_number() -> None:
    background: Background[str] = Background()
    may_go_on = threading.Event()

    def wait(_: IsWanted) -> str:
        may_go_on.wait()
        return "made"

    def fail(_: IsWanted) -> str:
        raise BadInputError("there is none")

    background.start(1, fail)
    assert select.select([background.descriptor], [], [], 20)[0]
    ((number, error),) = background.done()
    assert number == 1
    assert isinstance(error, LauncherError)
    background.start(2, wait)
    assert not select.select([background.descriptor], [], [], 0)[0]
    may_go_on.set()
    assert select.select([background.descriptor], [], [], 20)[0]
    assert background.done() == [(2, "made")]
    background.close()


def test_a_search_that_nobody_wants_any_more_stops_early_and_is_not_told_of() -> None:
    background: Background[str] = Background()
    has_begun, has_stopped = threading.Event(), threading.Event()

    def search(is_wanted: IsWanted) -> str:
        has_begun.set()
        while is_wanted():
            pass
        has_stopped.set()
        raise UnwantedError("nobody wants it")

    background.start(1, search)
    assert has_begun.wait(20)
    background.start(2, lambda _: "made")
    assert has_stopped.wait(20)
    assert select.select([background.descriptor], [], [], 20)[0]
    assert background.done() == [(2, "made")]
    background.close()


def test_a_plan_that_is_hardly_better_than_the_one_that_streams_is_not_cut(
    tmp_path: Path,
) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    planner = replanner(cluster, tmp_path / "subnets")
    plan = planner(PlanRequest(1, ("a", "b"))).plan
    with pytest.raises(NotBetterError, match=r"1\.00 times as fast"):
        planner(PlanRequest(2, ("a", "b"), 1, least_gain=1.1), plan)
    assert not (tmp_path / "subnets" / "replanned-2").exists()
    assert planner(PlanRequest(3, ("a", "b"), 1), plan).gain == pytest.approx(1.0)


def test_a_plan_is_not_better_than_one_that_streams_faster_than_foreseen(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    planner = replanner(cluster, tmp_path / "subnets")
    plan = planner(PlanRequest(1, ("a", "b"))).plan
    assert planner(PlanRequest(2, ("a", "b"), 1, least_gain=0.9), plan).gain > 0.9
    with pytest.raises(NotBetterError, match=r"0\.50 times as fast"):
        planner(PlanRequest(3, ("a", "b"), 1, 0.9, plan.frame_s / 2), plan)


def test_what_is_done_after_the_end_is_forgotten() -> None:
    """Telling of it would raise an error in its thread, which fails the test."""
    background: Background[None] = Background()
    may_go_on = threading.Event()
    background.start(1, lambda _: may_go_on.wait() and None)
    background.close()
    may_go_on.set()
    for thread in threading.enumerate():
        if thread.name == "planning 1":
            thread.join(20)


def test_what_a_whole_search_finds_is_kept_for_the_next_run(tmp_path: Path) -> None:
    """Also if the run ends before a change to it, and however short the search is."""
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    planner = Planner(cluster, read_model(cluster), store=ProfileCache(tmp_path / "cache"))
    progress = LineDisplay(io.StringIO())
    before = planner.plan(progress, ["a", "b"])
    replan = Replanner(planner, tmp_path / "subnets")
    assert not replan.has_searched
    with suppress(NotBetterError):
        replan(PlanRequest(1, ("a", "b"), 0, effort="whole"), before)
    assert replan.has_searched
    assert "earlier search" in planner.plan(progress, ["a", "b"]).explanation


def test_a_search_that_the_end_of_the_run_stops_is_not_kept(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    planner = Planner(cluster, read_model(cluster), store=ProfileCache(tmp_path / "cache"))
    before = planner.plan(LineDisplay(io.StringIO()), ["a", "b"])
    replan = Replanner(planner, tmp_path / "subnets")
    replan.close()
    with pytest.raises(UnwantedError):
        replan(PlanRequest(1, ("a", "b"), 0, effort="whole"), before)
    assert not replan.has_searched
    assert not (tmp_path / "cache").exists()


def test_the_period_by_the_rehearsal_is_shown_while_the_run_continues(tmp_path: Path) -> None:
    said: list[str] = []
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    planner = Planner(cluster, read_model(cluster))
    replan = Replanner(planner, tmp_path / "subnets", said.append)
    plan = replan(PlanRequest(1, ("a",))).plan
    seconds = tuple(0.5 / len(plan.phases) for _ in plan.phases)
    replan.learn(plan, Rehearsed(1, {"a": Deployed(1, seconds, 1)}, {}))
    replan.close()
    (text,) = said
    assert text.endswith("frames/s expected, by the rehearsal")
    assert float(text.split()[0]) == pytest.approx(2.0, rel=0.05)
    assert replan.planner.learned["a"].subnets


def test_what_phases_take_in_the_stream_is_for_later_runs_only(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    model, store = read_model(cluster), ProfileCache(tmp_path / "cache")
    replan = Replanner(Planner(cluster, model, store=store), tmp_path / "subnets")
    plan = replan(PlanRequest(1, ("a",))).plan
    welcomes = {"a": Welcome(PROTOCOL, "a", "1", "tcp://x:1", "E", "machine", 4, 1)}
    seconds = {taken: tuple(taken / len(plan.phases) for _ in plan.phases) for taken in (0.5, 0.6)}
    replan.learn(plan, Rehearsed(1, {"a": Deployed(1, seconds[0.5], 1)}, welcomes))
    streamed = {"a": Deployed(1, seconds[0.6], 1)}
    replan.learn(plan, Rehearsed(1, streamed, welcomes, in_stream=True))
    replan.close()
    later = Planner(cluster, model, store=store).remembering(welcomes)
    for planner, taken_s in ((replan.planner, 0.5), (later, 0.6)):
        known_s = sum(subnet.seconds for subnet in planner.learned["a"].subnets)
        assert known_s == pytest.approx(taken_s)


def test_a_correction_may_return_to_the_plan_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(tmp_path)
    planner = Planner(cluster, read_model(cluster))
    found = planner.find(planner.problem(["a", "b"]), LineDisplay(io.StringIO()))
    alone = planner.find(planner.problem(["b"]), LineDisplay(io.StringIO()))
    monkeypatch.setattr(Planner, "streamed_before", lambda *_: alone)
    replan = Replanner(planner, tmp_path / "subnets")
    request = PlanRequest(1, ("a", "b"), 0, least_gain=0.0, effort="quick")
    assert replan(request, found.plan).plan is alone.plan
    assert replan(replace(request, effort="bounded"), found.plan).plan is not alone.plan


@pytest.mark.parametrize("strategy", ["auto", "sequential"])
def test_the_plan_that_streamed_is_where_the_next_run_begins(tmp_path: Path, strategy: str) -> None:
    """A plan made in a hurry serves only those who hurry too."""
    cluster = cluster_of(tmp_path, f"strategy: {strategy}\n")
    store, progress = ProfileCache(tmp_path / "cache"), LineDisplay(io.StringIO())
    planner = Planner(cluster, read_model(cluster), store=store, hurries=True)
    plan = planner.plan(progress, ["a", "b"])
    replan = Replanner(planner, tmp_path / "subnets")
    welcomes = {
        name: Welcome(PROTOCOL, name, "1", "tcp://x:1", "E", f"machine {name}", 4, 1)
        for name in ("a", "b")
    }
    seconds = {
        name: tuple(0.9 * phase.predicted_s for phase in plan.phases if phase.device == name)
        for name in welcomes
    }
    streamed = {name: Deployed(1, own, 1) for name, own in seconds.items() if own}
    replan.learn(plan, Rehearsed(1, streamed, welcomes, in_stream=True))
    replan.close()
    later = planner.remembering(welcomes)
    again = later.plan(progress, ["a", "b"])
    assert f"an earlier {'run' if strategy == 'auto' else 'search'}" in again.explanation
    assert (again.strategy, again.assignment) == (plan.strategy, plan.assignment)
    patient = replace(later, hurries=False).plan(progress, ["a", "b"])
    assert ("earlier search" in patient.explanation) == (strategy == "sequential")


def test_a_node_that_comes_later_is_as_fast_as_one_of_its_kind(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    pi, pc = (Welcome(PROTOCOL, "x", "1", "tcp://x:1", "E", kind, 4, 1) for kind in ("pi", "pc"))
    facts = with_boards(NO_FACTS, Roll({"a": Greeted("", pi)}), NO_FACTS.nodes(cluster))
    planner = Planner(cluster, read_model(cluster), facts=facts)
    replan = Replanner(planner, tmp_path / "subnets")
    plan = replan(PlanRequest(1, ("a",))).plan
    seconds = tuple(0.5 / len(plan.phases) for _ in plan.phases)
    replan.learn(plan, Rehearsed(1, {"a": Deployed(1, seconds, 1)}, {"a": pi}))
    replan(PlanRequest(2, ("a", "b", "c"), newcomers={"b": pi, "c": pc}))
    replan.close()
    assert replan.planner.profile is not None
    learned = replan.planner.profile.nodes
    assert learned["b"] == learned["a"]
    assert "c" not in learned


def test_a_plan_for_nodes_that_others_make_slow_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.plan.planner.WORTH_KEEPING_S", 0.0)
    cluster = cluster_of(tmp_path, "strategy: sequential\n")
    store = ProfileCache(tmp_path / "cache")
    replan = Replanner(Planner(cluster, read_model(cluster), store=store), tmp_path / "subnets")
    replan(PlanRequest(1, ("a", "b", "c"), slower={"a": 4.0}))
    assert not (tmp_path / "cache").exists()
    replan(PlanRequest(2, ("a", "b", "c")))
    assert (tmp_path / "cache").exists()
