"""`batch:` from `cluster.yaml` to the report: nodes compute several frames at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from ga.strategies import find_strategy
from launcher.commands.launch import main
from launcher.commands.partition import main as partition
from launcher.errors import BadInputError, RunFailedError
from launcher.inputs.frames import Inputs
from launcher.plan.prediction import times_of
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import LineDisplay
from launcher.results.collecting import Results
from launcher.run.request import Request
from launcher.run.runtime import RunOptions
from launcher.streaming.job import open_live
from launcher.streaming.live_cluster import live_cluster
from partition.devices import Device
from partition.planner import make_plan, plan_solution
from partition.strategies.base import Problem
from tests.agreement.comparison import LIMIT, random_frame, relative_error, run
from tests.launcher.in_process import InProcess
from tests.launcher.launches import Command, done, ended, reported
from tests.launcher.models import DIGITS, write_branches
from tests.launcher_runtime.clusters import all_pushed
from tests.networks import save, small_models

TEXT = "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\nframes: 10\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT + "batch: 4\n")
    return path


@given(
    proto=small_models(),
    batch=st.integers(2, 5),
    frames=st.integers(1, 11),
    strategy=st.sampled_from(("sequential", "horizontal", "tiles", "two-stage")),
)
@settings(max_examples=25)
def test_any_network_in_batches_has_the_whole_networks_results_in_order(
    proto: onnx.ModelProto, batch: int, frames: int, strategy: str, tmp_path: Path
) -> None:
    one = cnn.read(save(proto, tmp_path))
    many = one.in_batches(batch)
    devices = tuple(Device(name) for name in ("a", "b", "c"))
    problem = Problem(many.network, devices, {}, 0, model=many)
    solution = find_strategy(strategy).solve(problem)
    plan = plan_solution(problem, solution, strategy)
    assert plan.batch == batch
    subnets = cut_subnets(many, plan, tmp_path / "subnets", lambda _done, _all: None)
    given = [random_frame(one.network, seed) for seed in range(frames)]
    found: list[Mapping[str, np.ndarray]] = []

    def take(frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        assert frame == len(found)
        found.append(outputs)

    with all_pushed(one, given, take, batch) as feed:
        ran = InProcess().run(plan, (), subnets, (feed,), lambda _: None, RunOptions())
        result = feed.in_frames(ran)
    assert len(found) == len(result.sent_s) == len(result.received_s) == frames
    network = one.network
    whole = one.cut(network.layer, network.inputs, network.outputs, tmp_path).graph
    for frame, outputs in zip(given, found, strict=True):
        for name, wanted in run(whole, frame, network.outputs).items():
            assert outputs[name].shape == wanted.shape
            assert relative_error(outputs[name], wanted) <= LIMIT


def test_a_run_in_batches_agrees_with_the_whole_model_and_reports_frames(cluster: Path) -> None:
    nodes = InProcess()
    report = reported(Request(cluster), nodes)
    assert report.agreement is not None
    assert report.agreement.max_relative_error <= LIMIT
    assert report.agrees
    assert report.frames == 10
    assert report.as_json()["batch"] == report.batch == nodes.plans[0].batch == 4
    assert report.period_planned_s == nodes.plans[0].period_s / 4
    assert report.bytes_per_frame * 4 == pytest.approx(
        sum(c.wire_bytes for c in nodes.plans[0].channels if not c.is_local), abs=4
    )


def test_frames_before_one_that_cannot_be_read_have_their_results(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not wait for others of their batch for ever."""
    taken: list[int] = []
    take = Results.on_result
    monkeypatch.setattr(
        Results, "on_result", lambda self, n, *made: (taken.append(n), take(self, n, *made))
    )
    load, check = Inputs.__getitem__, Inputs.check
    checked: list[Inputs] = []
    monkeypatch.setattr(Inputs, "check", lambda self: (check(self), checked.append(self)))

    def broken(self: Inputs, index: int) -> Any:
        if index == 6 and checked:
            raise BadInputError("frame 6 is damaged")
        return load(self, index)

    monkeypatch.setattr(Inputs, "__getitem__", broken)
    with pytest.raises(RunFailedError, match="frame 6 is damaged"):
        reported(Request(cluster))
    assert taken == list(range(6))


def test_a_wrong_result_in_a_batch_is_found_and_named(cluster: Path) -> None:
    def disturb(batch: int, outputs: dict[str, np.ndarray]) -> None:
        if batch == 1:
            outputs["score"] = outputs["score"].copy()
            outputs["score"][2] += 1.0

    report = reported(Request(cluster), InProcess(disturb))
    assert not report.agrees
    assert report.worst_frame == 6


def test_the_command_line_takes_precedence(cluster: Path) -> None:
    nodes = InProcess()
    reported(Request(cluster, batch="3"), nodes)
    assert nodes.plans[0].batch == 3


def test_a_saved_plan_runs_in_its_batches(cluster: Path, tmp_path: Path) -> None:
    reported(Request(cluster, save=tmp_path / "plan"))
    nodes = InProcess()
    assert reported(Request(tmp_path / "plan"), nodes).agrees
    assert nodes.plans[0].batch == 4
    with pytest.raises(BadInputError, match="is a plan, which is for its own number"):
        reported(Request(tmp_path / "plan", batch="2"))


def test_a_paced_source_fills_batches_or_sends_them_incomplete(cluster: Path) -> None:
    """With one frame every 20 ms, some wait for the others of a batch, for 50 ms at most."""
    cluster.write_text(cluster.read_text() + "rate: 50\nrun: {batch_wait_s: 0.05}\n")
    report = reported(Request(cluster))
    assert report.agrees
    assert report.frames == 10
    assert report.pace is not None
    assert report.pace.dropped == 0
    assert report.latency_worst_s >= 0.02, "the wait for the others of a batch counts"


def test_a_single_frame_of_a_program_does_not_wait_for_others_for_ever(cluster: Path) -> None:
    with LineDisplay(sys.stderr) as progress:
        live = open_live(Request(cluster), progress, most=64, runtime=InProcess().runtime)
        with ExitStack() as stack:
            opened = live_cluster(stack.enter_context(live), ExitStack())
            frame = {
                name: np.full(info.shape, 0.5, info.dtype) for name, info in opened.inputs.items()
            }
            assert opened.outputs["score"].shape == (1, 4)
            alone = opened.infer(frame, timeout_s=20.0)
            several = list(opened.stream([frame] * 9))
    assert len(several) == 9
    for result in several:
        assert result["score"].shape == (1, 4)
        np.testing.assert_allclose(result["score"], alone["score"], rtol=1e-5)


def test_memory_is_predicted_for_a_batch_of_tensors_and_one_copy_of_weights() -> None:
    one = cnn.read(DIGITS / "digits.onnx")
    layers = [layer.name for layer in one.network.layers]
    assignment = {name: "ab"[number > 9] for number, name in enumerate(layers)}
    devices = (Device("a"), Device("b"))
    found = {}
    for batch in (1, 2, 8):
        network = one.in_batches(batch).network
        plan = make_plan(network, "", devices, assignment, strategy="", explanation="")
        found[batch] = plan.memory
        for name, memory in plan.memory.items():
            single = found[1][name]
            assert memory.weights_bytes == pytest.approx(single.weights_bytes, rel=0.01)
            assert memory.activations_bytes == batch * single.activations_bytes
            assert memory.engine_bytes == single.engine_bytes
            assert memory.channels_bytes % batch == 0
            assert memory.channels_bytes > batch * single.channels_bytes / 2


def test_the_cost_model_predicts_a_fixed_part_per_batch_and_a_part_per_frame() -> None:
    one = cnn.read(DIGITS / "digits.onnx")
    periods = []
    for batch in (1, 4, 16):
        model = one.in_batches(batch)
        problem = Problem(model.network, (Device("a"),), {}, 0, model=model)
        solution = find_strategy("sequential").solve(problem)
        plan = plan_solution(problem, solution, "sequential")
        periods.append(plan.frame_s)
        assert plan.period_s == plan.frame_s * batch
    assert periods[0] > periods[1] > periods[2]


def test_the_period_of_results_that_come_together_is_that_of_the_batches() -> None:
    sent, received = [0.0] * 4 + [1.0] * 4, [1.0] * 4 + [2.0] * 4
    assert times_of(sent, received).period_s == 0.25
    assert times_of([0.0] * 4, [2.0] * 4).period_s == 0.5


def test_a_run_shorter_than_a_cycle_of_copies_has_no_steady_period() -> None:
    received = [2.0, 2.001, 2.002, 2.003]
    assert times_of([0.0] * 4, received).period_s == pytest.approx(0.001)
    assert times_of([0.0] * 4, received, cycle=4).period_s == pytest.approx(2.003 / 4)


# ---------------------------------------------------------------- mistakes


def told(capsys: pytest.CaptureFixture[str], *arguments: object, command: Command = main) -> str:
    code, _, err = ended(command, capsys, *arguments)
    assert code == 2
    return err.splitlines()[-1]


def test_a_network_that_fixes_the_frames_is_refused_with_its_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 4))
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("ReduceMean", ["x"], ["y"], "all")
    graph = onnx.helper.make_graph([node], "net", [shape], [made])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "n.onnx"
    )
    path = tmp_path / "cluster.yaml"
    path.write_text("model: n.onnx\nnodes:\n  - name: a\nbatch: 2\n")
    sentence = told(capsys, path)
    assert (
        "cluster.yaml, line 4, batch: n: layer 'all' (ReduceMean) cannot compute several"
        in sentence
    )
    solve = ("solve", tmp_path / "n.onnx", "--devices", "2", "--batch", "2")
    assert "layer 'all' (ReduceMean)" in told(capsys, *solve, command=partition)


@pytest.mark.parametrize("batch", ["0", "1025", "2.5", "many"])
def test_a_batch_that_is_not_a_number_of_frames_is_refused(
    cluster: Path, capsys: pytest.CaptureFixture[str], batch: str
) -> None:
    cluster.write_text(TEXT + f"batch: {batch}\n")
    assert "line 7, batch" in told(capsys, cluster)


def test_the_plan_as_json_has_the_batch(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert done(main, capsys, cluster, "--plan-only")["batch"] == 4
    solve = ("solve", DIGITS / "digits.onnx", "--devices", "2", "--batch", "8")
    assert done(partition, capsys, *solve, "--strategy", "sequential")["batch"] == 8
