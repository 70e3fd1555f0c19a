"""Errors planted in one subnet are found and named, and networks without an error pass.

Three nodes' subnets run in this process, on black, white and noise frames, in every kind of number.
An error is in the files of the run, as wrong cutting or rewriting makes it, or with one node only.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from cnn.model import Model, read
from cnn.rewrite.rewrites import Slices
from launcher.plan.subnet_files import cut_subnets
from launcher.results.comparison.agreement import Agreement, FirstResults, compare, worse
from launcher.results.comparison.doubts import Doubt, settle
from launcher.results.comparison.replay import Replay
from launcher.results.comparison.tape import Tape
from launcher.results.networks import network_numbers
from launcher.results.whole import reference_results
from launcher.run.runtime import SubnetFiles
from nodes.executors import replay
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from tests.launcher import kinds
from tests.launcher.in_process import _session

Change = Callable[[onnx.ModelProto], None]

Computed = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]

pytestmark = pytest.mark.slow

SHOWN = tuple(kinds.frames())


@pytest.fixture
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are computed again by the process of the test, which has loaded the engine already."""

    def carry_out(_: Tape, job: Path, on_done: object) -> None:
        replay.run(json.loads(job.read_text("utf-8")))

    monkeypatch.setattr(Tape, "_carry_out", carry_out)


@dataclass(frozen=True)
class Cluster:
    """A model, and three nodes that have a third of its layers each."""

    folder: Path
    kind: str
    model: Model
    plan: Plan
    files: Mapping[str, SubnetFiles]

    @property
    def names(self) -> tuple[str, ...]:
        return self.model.network.outputs

    def frame(self, number: int) -> dict[str, np.ndarray]:
        return {"image": list(kinds.frames(self.kind).values())[number]}

    def with_error(self, device: str, change: Change) -> dict[str, SubnetFiles]:
        """The subnets, of which the first of `device` that can be is changed."""
        for phase in (phase for phase in self.plan.phases if phase.device == device):
            model = onnx.load(str(self.files[phase.name].graph))
            before = model.SerializeToString()
            change(model)
            if model.SerializeToString() != before:
                path = self.folder / f"changed {phase.name.replace('/', ' ')}"
                onnx.save(model, str(path))
                return {**self.files, phase.name: SubnetFiles(path, None)}
        raise AssertionError("nothing was changed")

    def compared(
        self,
        folder: Path,
        nodes: Mapping[str, SubnetFiles] | Computed,
        launcher: Mapping[str, SubnetFiles],
        *,
        shown: tuple[int, ...] = (0, 1, 2),
        rounds_alike: bool = True,
    ) -> Agreement:
        """What is said of the run in which `nodes` computed and `launcher` has these files."""
        network, numbers = self.model.network, network_numbers(self.model)
        first = FirstResults(folder / "first", numbers)
        for index, number in enumerate(shown):
            shown_frame = self.frame(number)
            results = nodes if callable(nodes) else functools.partial(self._results, nodes)
            first.add(index, results(shown_frame))
        original = self.model.write_original(folder / "original")

        def frame(index: int) -> dict[str, np.ndarray]:
            return self.frame(shown[index])

        references = reference_results(
            original, network.outputs, len(shown), frame, folder, lambda _: None
        )
        found = compare(first, self.names, references, numbers)
        if not found.doubtful:
            return found.agreement
        doubt = Doubt(
            original,
            {name: name for name in network.inputs},
            {name: name for name in network.outputs},
            numbers,
            found.doubtful,
        )
        replay = Replay(self.model, self.plan, launcher, numbers, folder / "replay")
        place = folder / "doubts"
        settled = settle(doubt, [replay], first, frame, place, rounds_alike=rounds_alike)
        return worse(found.agreement, settled)

    def _results(
        self, files: Mapping[str, SubnetFiles], tensors: dict[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        waiting = list(self.plan.phases)
        while waiting:
            ready = next(phase for phase in waiting if tensors.keys() >= set(phase.inputs))
            waiting.remove(ready)
            made = _session(files[ready.name]).run(
                list(ready.outputs), {name: tensors[name] for name in ready.inputs}
            )
            tensors.update(zip(ready.outputs, made, strict=True))
        return {name: tensors[name] for name in self.names}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    """Makes a cluster for a kind of numbers and a head; with layers in slices if so asked."""

    @cache
    def make(kind: str, head: str = "scores", *, sliced: bool = False) -> Cluster:
        folder = tmp_path_factory.mktemp(f"{kind}-{head}")
        model = read(kinds.write(folder / "model.onnx", kind, head))
        rewrites = (Slices("conv2a", (8, 8)), Slices("conv3b", (10, 6))) if sliced else ()
        network = model.rewritten(rewrites).network
        third = -(-len(network.layers) // 3)
        assignment = {x.name: "abc"[index // third] for index, x in enumerate(network.layers)}
        if sliced:
            assignment |= {x.name: "c" for x in network.layers if x.name.endswith("[2/2]")}
        devices = [Device(name) for name in "abc"]
        plan = make_plan(
            network, model.digest, devices, assignment,
            strategy="by hand", explanation="", rewrites=rewrites,
        )  # fmt: skip
        files = cut_subnets(model, plan, folder / "subnets", lambda _done, _all: None)
        return Cluster(folder, kind, model, plan, files)

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the quantizer's advice
    yield make
    root.setLevel(level)


def _weights(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The weights, or the scales of 8-bit ones."""
    return [
        tensor
        for tensor in model.graph.initializer
        if (tensor.name.endswith("weight") and tensor.data_type != onnx.TensorProto.INT8)
        or tensor.name.endswith(("weight_scale", "weight[8:16]", "weight[0:8]"))
    ]


def one_percent_more(model: onnx.ModelProto) -> None:
    for tensor in _weights(model):
        array = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array((array * 1.01).astype(array.dtype), tensor.name))


def another_pad(model: onnx.ModelProto) -> None:
    conv = next((node for node in model.graph.node if node.op_type == "Conv"), None)
    if conv is not None:
        pads = next(attribute for attribute in conv.attribute if attribute.name == "pads")
        pads.ints[:] = [0, 2, 2, 0]


def swapped_channels(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.ndim == 4 and array.shape[0] > 1:
            array = np.concatenate([array[1:2], array[:1], array[2:]])
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            return


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq", "dynamic"])
@pytest.mark.parametrize("head", ["scores", "mask", "boxes"])
def test_without_an_error_all_frames_agree(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str, head: str
) -> None:
    run = cluster(kind, head)
    assert run.compared(tmp_path, run.files, run.files).agrees


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq", "dynamic"])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC"])
def test_nodes_whose_engines_fuse_less_agree(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str, level: str
) -> None:
    run = cluster(kind)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(
        str(run.folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def computed(frame: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(run.names, session.run(list(run.names), frame), strict=True))

    found = run.compared(tmp_path, computed, run.files, rounds_alike=False)
    assert found.agrees
    assert found.rule == ("movement" if kind == "qdq" else "precision")


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq"])
@pytest.mark.parametrize("change", [one_percent_more, another_pad, swapped_channels])
def test_an_error_in_a_subnets_file_is_found_and_named(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str, change: Change
) -> None:
    run = cluster(kind)
    files = run.with_error("b", change)
    wrong = run.compared(tmp_path, files, files)
    assert not wrong.agrees
    assert wrong.begins is not None
    assert wrong.begins.node == "b"
    assert files[wrong.begins.phase].graph.name.startswith("changed")
    assert run.plan.assignment[wrong.begins.layer] == "b"


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq"])
@pytest.mark.parametrize("shown", range(3), ids=SHOWN)
def test_a_percent_too_much_in_one_phase_is_found_on_every_frame(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str, shown: int
) -> None:
    run = cluster(kind)
    files = run.with_error("a", one_percent_more)
    assert not run.compared(tmp_path, files, files, shown=(shown,)).agrees


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq"])
def test_an_error_that_only_a_node_has_is_put_down_to_the_nodes(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str
) -> None:
    run = cluster(kind)
    wrong = run.compared(tmp_path, run.with_error("b", one_percent_more), run.files)
    assert not wrong.agrees
    assert wrong.begins is not None
    assert "agree with the whole model on this machine" in wrong.begins.sentence


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("kind", ["float32", "float16", "qdq"])
def test_slices_are_compared_with_the_parts_that_they_are(
    cluster: Callable[..., Cluster], tmp_path: Path, kind: str
) -> None:
    run = cluster(kind, sliced=True)
    assert run.compared(tmp_path / "right", run.files, run.files).agrees
    files = run.with_error("c", swapped_channels)
    wrong = run.compared(tmp_path / "wrong", files, files)
    assert not wrong.agrees
    assert wrong.begins is not None
    assert wrong.begins.node == "c"
    assert "[2/2]" in wrong.begins.layer


def test_a_network_that_was_read_wrongly_is_told_from_a_wrong_plan(
    cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    run = cluster("float32")
    weights = dict(run.model.weights)
    weights["fc.weight"] = weights["fc.weight"] * np.float32(1.05)
    misread = replace(run.model, _weights=weights)
    files = cut_subnets(misread, run.plan, tmp_path / "subnets", lambda _done, _all: None)
    wrong = replace(run, model=misread).compared(tmp_path, files, files)
    assert not wrong.agrees
    assert wrong.begins is not None
    assert "after reading and simplification" in wrong.begins.sentence
