"""`batch: auto` and `max_latency`: how many frames nodes compute at once, and what is refused."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import cnn
from cnn.model import read
from launcher.commands.launch import main as launch
from launcher.commands.partition import main as partition
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.plan.batch_size import CANDIDATES, choose, fill_s
from launcher.plan.measuring import LADDER, fits
from launcher.plan.profile.file import (
    NodeEntry,
    NodeIdentity,
    NodeTimes,
    ProfileFile,
    read_profile,
    write_atomically,
)
from partition.devices import Device
from partition.measured.profiles import BatchTimes, NodeProfile
from partition.plan import Plan
from partition.planner import make_plan
from tests.launcher.launches import in_json
from tests.launcher.models import DIGITS, write_branches

TEXT = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\nframes: 10\n"
FIXED_S, FRAME_S = 8e-3, 1e-3
"""What a firing of a layer takes in the profiles below: eight frames as long as twice one."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def profiled(folder: Path, curve: Callable[[int], float] | None = None) -> None:
    """Write a profile of the folder's cluster, with curves unless there is none."""
    model = read(folder / "branches.onnx")

    def layers(frames: int) -> dict[str, float]:
        seconds = FIXED_S + FRAME_S if curve is None else curve(frames)
        return dict.fromkeys((layer.name for layer in model.network.layers), seconds)

    batched = None if curve is None else tuple(BatchTimes(n, layers(n)) for n in LADDER)
    times = NodeTimes.of(NodeProfile(layers(1), batched=batched))
    identity = NodeIdentity(
        host=socket.gethostname(), threads=1, cpus=(), machine="m", cores=1, engine="e", version="1"
    )
    file = ProfileFile(
        model="branches",
        model_digest=model.digest,
        energy="",
        nodes={name: NodeEntry(identity=identity, measured=times) for name in "ab"},
    )
    write_atomically(folder / "profile.json", file)
    assert read_profile(folder / "profile.json") == file


def gaining(frames: int) -> float:
    return FIXED_S + FRAME_S * frames


# ---------------------------------------------------------------- the decision


def cluster_of(folder: Path, text: str = "") -> Cluster:
    (folder / "cluster.yaml").write_text(TEXT + text)
    return load_cluster(folder / "cluster.yaml")


def plans(figures: Mapping[int, tuple[float, float]]) -> Callable[[int, str | None], Plan]:
    """Return a search whose plans have these periods per frame and latencies, by batch."""
    network = cnn.read(DIGITS / "digits.onnx").network
    where = {layer.name: "a" for layer in network.layers}
    plan = make_plan(network, "", (Device("a"),), where, strategy="", explanation="")

    def search(batch: int, _: str | None) -> Plan:
        if batch not in figures:
            raise BadInputError(f"no room for {batch}")
        frame_s, latency_s = figures[batch]
        return replace(plan, batch=batch, period_s=frame_s * batch, latency_s=latency_s)

    return search


FIGURES = {1: (9.0, 10.0), 2: (5.0, 12.0), 4: (3.0, 15.0), 8: (2.0, 20.0), 16: (1.99, 40.0)}


def at_once(_: int) -> float:
    return 0.0


def test_the_smallest_of_the_batches_of_shortest_period_per_frame_is_chosen(folder: Path) -> None:
    plan, choice = choose(cluster_of(folder), plans(FIGURES), at_once)
    assert plan.batch == choice.batch == 8
    assert "the shortest period per frame: 2e+03 ms" in choice.reason
    assert "16: 1.99e+03 ms" in choice.reason
    assert choice.refused == {32: "no room for 32"}
    assert "none of 32: no room for 32" in choice.reason


def test_a_batch_whose_latency_is_too_long_is_not_chosen(folder: Path) -> None:
    bound = cluster_of(folder, "max_latency: 16s\n")
    assert choose(bound, plans(FIGURES), at_once)[0].batch == 4
    assert choose(bound, plans(FIGURES), lambda batch: batch - 1.0)[0].batch == 2


def test_a_bound_that_no_batch_meets_is_refused_with_the_least_latency(folder: Path) -> None:
    bound = cluster_of(folder, "max_latency: 9s\n")
    with pytest.raises(BadInputError, match=r"line 7, max_latency: no number of frames.*1e\+04 ms"):
        choose(bound, plans(FIGURES), at_once)


def test_the_users_strategy_has_the_last_word_on_the_latency(folder: Path) -> None:
    bound = cluster_of(folder, "max_latency: 16s\n").changed(strategy="vertical")
    quick, own = plans(FIGURES), plans({**FIGURES, 4: (2.5, 17.0)})

    def search(batch: int, strategy: str | None) -> Plan:
        return (quick if strategy == "sequential" else own)(batch, strategy)

    plan, choice = choose(bound, search, at_once)
    assert plan.batch == 2
    assert next(each for each in choice.candidates if each.batch == 4).latency_s == 17.0


def test_a_cluster_on_which_nothing_fits_has_the_error_of_single_frames(folder: Path) -> None:
    with pytest.raises(BadInputError, match="no room for 1"):
        choose(cluster_of(folder), plans({}), at_once)


def test_frames_wait_for_their_batch_as_their_source_brings_them(folder: Path) -> None:
    of_files, pushed = cluster_of(folder), cluster_of(folder, "run: {batch_wait_s: 0.2}\n")
    assert fill_s(of_files, is_pushed=False)(16) == 0.0
    assert fill_s(pushed, is_pushed=True)(16) == 0.2
    assert fill_s(pushed, is_pushed=True)(1) == 0.0
    paced = cluster_of(folder, "rate: 100\n")
    assert fill_s(paced, is_pushed=False)(4) == pytest.approx(0.03)
    assert fill_s(paced, is_pushed=False)(16) == 0.05


# ---------------------------------------------------------------- from cluster.yaml to the plan


def test_auto_plans_the_batch_that_the_curves_favour_and_says_why(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(folder, gaining)
    given = ("cluster.yaml", "--plan-only", "--profile", "profile.json", "--batch", "auto")
    code, plan = in_json(launch, capsys, *given)
    assert code == 0, plan
    choice = plan["batch_choice"]
    assert plan["batch"] == choice["batch"] == 32
    assert [each["batch"] for each in choice["candidates"]] == list(CANDIDATES)
    periods = [each["period_s"] for each in choice["candidates"]]
    latencies = [each["latency_s"] for each in choice["candidates"]]
    memory = [each["memory_bytes"] for each in choice["candidates"]]
    assert periods == sorted(periods, reverse=True)
    assert latencies == sorted(latencies)
    assert memory == sorted(memory)
    bound = f"{(latencies[2] + latencies[3]) / 2 * 1e3}ms"
    code, plan = in_json(launch, capsys, *given, "--max-latency", bound)
    assert code == 0, plan
    assert plan["batch"] == 4
    solve = ("solve", "--cluster", "cluster.yaml", *given[2:])
    code, solved = in_json(partition, capsys, *solve, "--max-latency", bound)
    assert code == 0, solved
    assert solved["batch"] == solved["batch_choice"]["batch"] == 4
    assert solved["times"] == "measured"


def test_curves_without_a_gain_leave_single_frames(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(folder, lambda frames: 10.0 * frames)
    given = ("--plan-only", "--profile", "profile.json", "--batch", "auto")
    code, plan = in_json(launch, capsys, "cluster.yaml", *given)
    assert code == 0, plan
    assert plan["batch"] == 1


def test_a_plan_that_is_saved_has_the_number_that_was_chosen(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(folder, gaining)
    given = ("--profile", "profile.json", "--batch", "auto", "--plan-only", "--save", "plan")
    assert in_json(launch, capsys, "cluster.yaml", *given)[0] == 0
    assert yaml.safe_load((folder / "plan" / "cluster.yaml").read_text())["batch"] == 32
    code, plan = in_json(launch, capsys, "plan", "--plan-only")
    assert code == 0, plan
    assert plan["batch"] == 32
    code, refused = in_json(launch, capsys, "plan", "--plan-only", "--batch", "8")
    assert code == 2
    assert "is a plan, which is for its own number of frames" in refused["error"]


def test_a_profile_of_single_frames_serves_a_given_batch_but_not_auto(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profiled(folder)
    given = ("cluster.yaml", "--plan-only", "--profile", "profile.json", "--batch")
    periods = {}
    for batch in ("1", "4"):
        code, plan = in_json(launch, capsys, *given, batch)
        assert code == 0, plan
        periods[batch] = plan["period_planned_s"]
    assert periods["4"] == pytest.approx(periods["1"], rel=0.1)
    code, refused = in_json(launch, capsys, *given, "auto")
    assert code == 2
    assert "the profile has only single frames of a, b; measure them with" in refused["error"]


# ---------------------------------------------------------------- mistakes


def test_auto_without_a_profile_says_what_to_measure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cluster.yaml").write_text(TEXT + "batch: auto\n")
    code, refused = in_json(launch, capsys, "cluster.yaml", "--plan-only")
    assert code == 2
    assert "line 7, batch: auto needs measured batches, but there is no profile" in refused["error"]
    assert "csdf-edge partition profile --batch auto" in refused["error"]


@pytest.mark.parametrize("batch", ["1", "8", "auto"])
def test_a_latency_that_cannot_be_met_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], batch: str
) -> None:
    profiled(folder, gaining)
    bound = ("--batch", batch, "--max-latency", "1ms", "--profile", "profile.json")
    code, refused = in_json(launch, capsys, "cluster.yaml", "--plan-only", *bound)
    assert code == 2
    code, again = in_json(partition, capsys, "solve", "--cluster", "cluster.yaml", *bound)
    assert code == 2
    for error in (refused["error"], again["error"]):
        assert "max_latency: " in error
        assert "1 ms" in error
        assert (
            "the least latency found is" in error if batch == "auto" else f"batch {batch}" in error
        )


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--batch", "many", "--batch must be a number of frames from 1 to 1024, or auto"),
        ("--batch", "0", "--batch must be a number of frames"),
        ("--max-latency", "soon", "--max-latency must be a duration such as 200ms"),
        ("--max-latency", "0ms", "--max-latency must be a duration above zero"),
    ],
)
def test_options_that_are_wrong_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, value: str, sentence: str
) -> None:
    code, refused = in_json(launch, capsys, "cluster.yaml", "--plan-only", option, value)
    assert code == 2
    assert sentence in refused["error"]
    solve = ("solve", "branches.onnx", "--devices", "2", option, value)
    assert in_json(partition, capsys, *solve)[0] == 2


def test_equal_devices_have_no_measured_batches(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solve = ("solve", "branches.onnx", "--devices", "2", "--batch", "auto")
    code, refused = in_json(partition, capsys, *solve)
    assert code == 2
    assert "--batch auto needs --cluster" in refused["error"]


def test_no_batch_is_measured_that_a_node_has_no_room_for() -> None:
    model = cnn.read("onnx-wheel:squeezenet")
    small = Device("a", memory_bytes=80_000_000)
    assert fits(model, small)
    assert not fits(model.in_batches(32), small)


# ---------------------------------------------------------------- with agents


@pytest.mark.slow
def test_measured_chosen_and_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cluster.yaml").write_text(TEXT + "batch: auto\nprofile: profile.json\n")
    code, data = in_json(partition, capsys, "profile", "--cluster", "cluster.yaml")
    assert code == 0, data
    assert data["measured_now"]["batches"] >= 3
    for node in data["nodes"].values():
        frames = [each["frames"] for each in node["measured"]["batched"]]
        assert frames == list(LADDER[: len(frames)])
    code, again = in_json(partition, capsys, "profile", "--cluster", "cluster.yaml")
    assert code == 0
    again["measured_now"].pop("subnets")  # their times may have led to a plan with other ones
    assert not any(again["measured_now"].values())
    code, report = in_json(launch, capsys, "cluster.yaml", "--max-latency", "10s")
    assert code == 0, report
    assert report["batch"] == report["batch_choice"]["batch"] in CANDIDATES
    assert report["max_latency_s"] == 10.0
    assert report["max_relative_error"] <= 1e-4
