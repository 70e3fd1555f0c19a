"""`state:` in cluster.yaml: every strategy computes what a plain loop over the whole model does."""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cnn
from ga.strategies import STRATEGIES
from launcher.errors import BadInputError
from launcher.run.processes import start_agents
from launcher.run.request import Request
from launcher.run.runner import AgentRunner
from launcher.run.runtime import Node, Runner
from tests.launcher.in_process import InProcess
from tests.launcher.launches import launched, reported
from tests.recurrent import CELL, LSTM, camera_frames, cell, lstm, plain_loop

pytestmark = pytest.mark.usefixtures("quick_searches")

FRAMES = 12
DEALING = {"batch-split", "batch-split-paper", "replicated"}
"""Strategies that deal frames out to copies of the network."""


def write_cluster(
    folder: Path,
    model: str = "{path: cell.onnx, state: {h: hn}}",
    frames: int = FRAMES,
    more: str = "",
) -> Path:
    """Three nodes, and as many distinct inputs as there are frames."""
    (folder / "cell.onnx").write_bytes(cell().SerializeToString())
    (folder / "lstm.onnx").write_bytes(lstm().SerializeToString())
    given = np.stack([frame["x"] for frame in camera_frames(frames)])
    np.savez(folder / "frames.npz", x=given)
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: {model}\nnodes: [{{name: a}}, {{name: b}}, {{name: c}}]\n"
        "input: frames.npz\nstrategy: sequential\n"
        f"{more}"
    )
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write_cluster(tmp_path)


def check_results(
    folder: Path, model: Path, state: Mapping[str, str], frames: int = FRAMES
) -> None:
    """Raises unless `folder` has what the plain loop gives."""
    for number, wanted in enumerate(plain_loop(model, camera_frames(frames), state)):
        for name, array in wanted.items():
            found = np.load(folder / f"{number:06d}.{name}.npy")
            np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=() if name in ("sequential", "horizontal") else pytest.mark.slow)
        for name in sorted(STRATEGIES.keys() - DEALING)
    ],
)
def test_every_strategy_computes_the_plain_loop(cluster: Path, strategy: str) -> None:
    if strategy == "manual":
        network = cnn.read(cluster.parent / "cell.onnx", state=CELL).network
        pins = {layer.name: "abc"[place % 3] for place, layer in enumerate(network.layers)}
        cluster.write_text(f"{cluster.read_text()}pins: {json.dumps(pins)}\n")
    output = cluster.parent / "out"
    nodes = InProcess()
    report = reported(Request(cluster, strategy=strategy, output=output), nodes)
    assert report.agrees
    check_results(output, cluster.parent / "cell.onnx", CELL)


@pytest.mark.parametrize("strategy", sorted(DEALING))
def test_a_strategy_that_deals_frames_out_is_refused_by_name(cluster: Path, strategy: str) -> None:
    with pytest.raises(BadInputError) as refused:
        launched(Request(cluster, strategy=strategy))
    assert str(refused.value) == (
        f"{cluster}: strategy {strategy!r} deals frames out to copies of the network, and network "
        "'cell' keeps state ('h') that each frame needs from the one before; choose another "
        "strategy"
    )


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("{k: hn}", "state names the input 'k', but the model's inputs are x, h"),
        ("{h: y}", "'h', which is float32[1, 4], from the output 'y', which is float32[1, 5]"),
        ("[h, hn]", "model.state: must be a mapping"),
    ],
)
def test_a_mistake_ends_with_a_sentence_and_its_line(
    tmp_path: Path, state: str, sentence: str
) -> None:
    cluster = write_cluster(tmp_path, f"{{path: cell.onnx, state: {state}}}")
    with pytest.raises(BadInputError) as refused:
        launched(Request(cluster))
    assert f"{cluster}, line 1, model" in str(refused.value)
    assert sentence in str(refused.value)


def test_a_node_that_forgets_its_state_is_found_out(cluster: Path) -> None:
    """One that is reset is wrong at the next frame, and continues rightly from there."""

    def forget(frame: int, state: dict[str, np.ndarray]) -> None:
        if frame == 6:
            state["h"] = np.zeros_like(state["h"])

    report = reported(Request(cluster), InProcess(keep=forget))
    assert not report.agrees
    assert report.worst_frame == 7


def test_a_wrong_result_is_found_out_and_where_it_begins(cluster: Path) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        if frame == 4:
            outputs["y"] = outputs["y"][:, ::-1]

    report = reported(Request(cluster), InProcess(spoil))
    assert (report.agrees, report.worst_frame, report.worst_output) == (False, 4, "y")


def test_repeated_inputs_are_frames_of_their_own(cluster: Path) -> None:
    """The same input gives another result each time."""
    cluster.write_text(f"{cluster.read_text()}frames: {2 * FRAMES}\n")
    output = cluster.parent / "out"
    report = reported(Request(cluster, output=output))
    assert report.agrees
    given = 2 * camera_frames(FRAMES)
    wanted = list(plain_loop(cluster.parent / "cell.onnx", given, CELL))
    found = np.load(output / f"{FRAMES:06d}.y.npy")
    assert not np.allclose(found, wanted[0]["y"], atol=1e-3)
    np.testing.assert_allclose(found, wanted[FRAMES]["y"], atol=1e-6)


def test_without_comparison_the_simplified_network_is_tried_with_random_state(
    cluster: Path,
) -> None:
    report = reported(Request(cluster, verify=False))
    assert report.agreement is None


def test_two_networks_keep_state_of_their_own(tmp_path: Path) -> None:
    cluster = write_cluster(
        tmp_path,
        "[{path: cell.onnx, state: {h: hn}}, {path: lstm.onnx, state: {h: hn, c: cn}}]",
    )
    output = tmp_path / "out"
    report = reported(Request(cluster, output=output))
    assert report.agrees
    check_results(output / "cell", tmp_path / "cell.onnx", CELL)
    check_results(output / "lstm", tmp_path / "lstm.onnx", LSTM)


# ---------------------------------------------------------------- resuming


class InterruptError(Exception):
    """The launcher ends here."""


def ends_at(frame: int) -> InProcess:
    def end(number: int, _: dict[str, np.ndarray]) -> None:
        if number == frame:
            raise InterruptError

    return InProcess(end)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return write_cluster(tmp_path, more="journal: kept\n")


def test_resumed_twice_it_computes_the_plain_loop(kept: Path) -> None:
    output = kept.parent / "out"
    for at in (3, 4):
        with pytest.raises(InterruptError):
            launched(Request(kept, output=output, resume=True), ends_at(at))
    last = InProcess()
    report = reported(Request(kept, output=output, resume=True), last)
    assert report.agrees
    assert report.as_json()["journal"]["resumed"] == 7
    check_results(output, kept.parent / "cell.onnx", CELL)


@pytest.mark.slow
def test_resumed_after_removed_results_it_computes_the_plain_loop(tmp_path: Path) -> None:
    """The state is that after the last result that was removed, or kept."""
    bound = "journal: {folder: kept, keep: 140kB}\n"
    kept = write_cluster(tmp_path, frames=800, more=bound)
    output = kept.parent / "out"
    for at in (500, 100):
        with pytest.raises(InterruptError):
            launched(Request(kept, output=output, resume=True), ends_at(at))
        kept.write_text(kept.read_text().replace("140kB", "50kB"))
    report = reported(Request(kept, output=output, resume=True))
    assert report.agrees
    assert report.journal is not None
    assert report.journal.removed_before > 0
    check_results(output, kept.parent / "cell.onnx", CELL, frames=800)


def test_what_follows_a_damaged_result_is_computed_again(kept: Path) -> None:
    """The state with which the next frame began was in it."""
    with pytest.raises(InterruptError):
        launched(Request(kept), ends_at(8))
    file = kept.parent / "kept/hn.npy"
    rows = np.load(file, mmap_mode="r+")
    rows[5] += 1
    rows.flush()
    output = kept.parent / "out"
    report = reported(Request(kept, output=output, resume=True))
    assert report.agrees
    told = report.as_json()["journal"]
    assert (told["resumed"], told["damaged"], told["saved"]) == (5, 1, FRAMES)
    check_results(output, kept.parent / "cell.onnx", CELL)
    complete = launched(Request(kept, resume=True)).complete
    assert complete is not None
    assert complete.problem is None


def test_a_journal_of_other_state_is_refused(kept: Path) -> None:
    launched(Request(kept))
    kept.write_text(kept.read_text().replace(", state: {h: hn}", ""))
    with pytest.raises(BadInputError):
        launched(Request(kept, resume=True))


def test_a_saved_plan_keeps_state(cluster: Path) -> None:
    saved, output = cluster.parent / "saved", cluster.parent / "out"
    launched(Request(cluster, save=saved))
    launched(Request(saved, output=output))
    check_results(output, cluster.parent / "cell.onnx", CELL)


# ---------------------------------------------------------------- real agents


class Strikes:
    """Runs on agents of this machine; kills each of `victims` when its frame has come out."""

    def __init__(self, victims: Mapping[int, str]) -> None:
        self._victims = victims
        self.recovered: list[str] = []

    @contextmanager
    def runtime(self, nodes: tuple[Node, ...]) -> Iterator[Runner]:
        with start_agents(nodes) as agents:

            def strike(on_result: Any, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
                on_result(frame, outputs)
                if frame in self._victims:
                    os.kill(agents[self._victims[frame]].pid, signal.SIGKILL)

            strikes = self

            class Struck(AgentRunner):
                def __call__(self, plan: Any, nodes: Any, subnets: Any, networks: Any, *rest: Any):
                    (network,) = networks
                    network.took = functools.partial(strike, network.took)
                    result = super().__call__(plan, nodes, subnets, networks, *rest)
                    strikes.recovered = [node for past in result.recoveries for node in past.nodes]
                    return result

            yield Struck(agents)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "state", "strategy"),
    [
        ("cell", CELL, "sequential"),
        ("cell", CELL, "auto"),
        ("lstm", LSTM, "hybrid"),
        ("lstm", LSTM, "sequential"),
    ],
)
def test_nodes_are_killed_and_every_result_is_the_plain_loops(
    tmp_path: Path, model: str, state: dict[str, str], strategy: str
) -> None:
    pairs = json.dumps(state)
    cluster = write_cluster(tmp_path, f"{{path: {model}.onnx, state: {pairs}}}", frames=120)
    output, agents = tmp_path / "out", Strikes({20: "b", 70: "a"})
    request = Request(cluster, strategy=strategy, output=output)
    report = reported(request, agents)
    assert report.agrees
    assert set(agents.recovered) <= {"a", "b"}
    assert agents.recovered or strategy == "auto"
    check_results(output, tmp_path / f"{model}.onnx", state, frames=120)


@pytest.mark.slow
def test_a_source_that_drops_frames_leaves_them_out_of_the_loop(tmp_path: Path) -> None:
    more = "rate: 400\non_overload: drop-oldest\nqueue_frames: 2\n"
    cluster = write_cluster(tmp_path, frames=200, more=more)
    output = tmp_path / "out"
    report = reported(Request(cluster, output=output), Strikes({10: "c"}))
    assert report.agrees
    assert report.pace is not None
    rows = report.pace.dropped_frames
    dropped = {frame for first, last in rows for frame in range(first, last + 1)}
    assert dropped
    kept = [(i, frame) for i, frame in enumerate(camera_frames(200)) if i not in dropped]
    loop = plain_loop(tmp_path / "cell.onnx", [frame for _, frame in kept], CELL)
    for (number, _), wanted in zip(kept, loop, strict=True):
        found = np.load(output / f"{number:06d}.y.npy")
        np.testing.assert_allclose(found, wanted["y"], rtol=1e-4, atol=1e-6)
