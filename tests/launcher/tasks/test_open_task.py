"""A cluster's network has a task: what cluster.yaml says, and what the model's file says."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

import cnn
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.results.networks import open_results
from launcher.run.request import Request
from launcher.tasks.opening import Task, assumed, open_task
from launcher.tasks.predictions import FoundObjects, ImageClasses
from tests.launcher.models import DIGITS, write_branches

SIZE = 16
ULTRALYTICS = {"author": "Ultralytics", "task": "detect", "names": "{0: 'cat', 1: 'dog'}"}


def write_detector(folder: Path, metadata: dict[str, str] | None = None) -> Path:
    """A network that finds a box wherever the image is bright, as YOLOv8 does: o [1, 6, 16].

    Its cells are 4 × 4 pixels, and their boxes are as large; class 1 has the brightness of red.
    """
    cells = SIZE // 4
    y, x = np.mgrid[2:SIZE:4, 2:SIZE:4].reshape(2, 1, cells * cells).astype(np.float32)
    size = np.full_like(x, 4)
    boxes = np.stack([x, y, size, size], axis=1)
    weight = np.zeros((2, 3, 4, 4), np.float32)
    weight[1, 0] = 1 / 16
    nodes = [
        helper.make_node("Conv", ["images", "w"], ["cells"], "scores", strides=[4, 4]),
        helper.make_node("Reshape", ["cells", "shape"], ["rows"], "flat"),
        helper.make_node("Concat", ["boxes", "rows"], ["o"], "join", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, 6, cells * cells])],
        [
            onnx.numpy_helper.from_array(weight, "w"),
            onnx.numpy_helper.from_array(boxes, "boxes"),
            onnx.numpy_helper.from_array(np.array([1, 2, cells * cells]), "shape"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    path = folder / "detector.onnx"
    onnx.save(model, str(path))
    return path


def opened(folder: Path, model: Path, *lines: str) -> Task:
    text = "\n".join([f"model: {model}", "nodes: [{name: a}]", *lines])
    (folder / "cluster.yaml").write_text(text)
    return open_task(load_cluster(folder / "cluster.yaml"), cnn.read(model))


def infer(model: Path, inputs: object) -> dict[str, np.ndarray]:
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - only here

    session = ReferenceEvaluator(str(model))
    return dict(zip(session.output_names, session.run(None, dict(inputs)), strict=True))  # type: ignore[call-overload]


def bright_at(x: int, y: int) -> np.ndarray:
    """A picture of 64 × 32 pixels, dark but for a red square of 16."""
    image = np.zeros((32, 64, 3), np.uint8)
    image[y : y + 16, x : x + 16, 0] = 255
    return image


def test_from_a_picture_to_a_box_in_its_pixels(tmp_path: Path) -> None:
    model = write_detector(tmp_path, ULTRALYTICS)
    task = opened(tmp_path, model, "task: detect")
    inputs, place = task.prepare(bright_at(32, 16))
    assert (place.scale_x, place.left, place.top) == (0.25, 0, 4)
    found = task.decode(infer(model, inputs), place)
    assert isinstance(found, FoundObjects)
    assert found.as_json()["objects"] == [
        {"class": 1, "name": "dog", "score": 1.0, "box": [32.0, 16.0, 48.0, 32.0]}
    ]


def test_a_model_that_names_its_task_is_decoded_without_the_key(tmp_path: Path) -> None:
    model = write_detector(tmp_path, ULTRALYTICS)
    task = opened(tmp_path, model)
    for x in (0, 48):  # the network sees both ends of a wide image
        inputs, place = task.prepare(bright_at(x, 16))
        assert (place.scale_x, place.left, place.top) == (0.25, 0, 4)
        found = task.decode(infer(model, inputs), place)
        assert isinstance(found, FoundObjects)
        assert [(one.name, one.box) for one in found.objects] == [("dog", (x, 16, x + 16, 32))]
    inputs, place = opened(tmp_path, model, "input: {files: random, resize: crop}").prepare(
        bright_at(16, 0)
    )
    assert place.scale_x == 0.5


def test_what_is_assumed_of_images_is_one_sentence(tmp_path: Path) -> None:
    model = write_detector(tmp_path, {**ULTRALYTICS, "imgsz": "[16, 16]"})
    opened(tmp_path, model)

    def said(*lines: str) -> str:
        opened(tmp_path, model, *lines)
        return assumed(load_cluster(tmp_path / "cluster.yaml"), cnn.read(model))

    assert said() == (
        "detector: images are letterboxed to 16×16, RGB, 0..1, which is its imgsz; outputs are "
        "boxes: the model's metadata say so. The keys task and input change it"
    )
    assert said("task: auto") == said()
    assert said("task: detect") == said("task: none") == ""
    model = write_detector(tmp_path)
    assert said() == ""
    model = write_branches(tmp_path / "branches.onnx")
    assert said() == ""


def test_outputs_with_the_form_of_yolo_are_boxes_without_metadata(tmp_path: Path) -> None:
    """A grid of 8 × 8, 4 × 4 and 2 × 2 cells for 64 × 64 pixels: [1, 4 + 2, 84]."""
    model = write_grid(tmp_path / "grid.onnx")
    task = opened(tmp_path, model)
    image = np.zeros((36, 64, 3), np.uint8)
    inputs, place = task.prepare(image)
    assert (place.scale_x, place.top) == (1, 14)
    found = task.decode(infer(model, inputs), place)
    assert isinstance(found, FoundObjects)
    assert [(one.number, one.box) for one in found.objects] == [(1, (24, 10, 40, 26))]
    sentence = assumed(load_cluster(tmp_path / "cluster.yaml"), cnn.read(model))
    assert "letterboxed to 64×64" in sentence
    assert "outputs are boxes: their form suggests it" in sentence
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    task = opened(tmp_path, model, "labels: names.txt")
    found = task.decode(infer(model, inputs), place)
    assert isinstance(found, FoundObjects)
    assert found.objects[0].name == "dog"


def write_grid(path: Path) -> Path:
    """A network with an output of the form [1, 6, 84] that has one box, whatever the image is."""
    rows = np.zeros((1, 6, 84), np.float32)
    rows[0, :, 40] = (32, 32, 16, 16, 0.1, 0.9)
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], "mean", axes=[2, 3], keepdims=0),
        helper.make_node("ReduceMean", ["mean"], ["one"], "one", axes=[1], keepdims=0),
        helper.make_node("Mul", ["one", "zero"], ["nothing"], "nothing"),
        helper.make_node("Add", ["rows", "nothing"], ["o"], "add"),
    ]
    graph = helper.make_graph(
        nodes,
        "grid",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, 6, 84])],
        [
            onnx.numpy_helper.from_array(rows, "rows"),
            onnx.numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
              str(path))  # fmt: skip
    return path


def test_a_model_that_says_nothing_is_fitted_and_not_decoded(tmp_path: Path) -> None:
    model = write_detector(tmp_path)
    task = opened(tmp_path, model)
    inputs, place = task.prepare(bright_at(0, 0))
    assert inputs["images"].shape == (1, 3, SIZE, SIZE)
    assert task.decode(infer(model, inputs), place) is None


def test_labels_go_before_the_models_own_names(tmp_path: Path) -> None:
    model = write_detector(tmp_path, ULTRALYTICS)
    (tmp_path / "names.txt").write_text("first\nsecond\n")
    task = opened(tmp_path, model, "task: detect", "labels: names.txt")
    inputs, place = task.prepare(bright_at(0, 0))
    found = task.decode(infer(model, inputs), place)
    assert isinstance(found, FoundObjects)
    assert found.objects[0].name == "second"


def test_a_classifier_names_the_likeliest_classes(tmp_path: Path) -> None:
    task = opened(tmp_path, DIGITS / "digits.onnx", "task: {kind: classify, top: 2}")
    inputs, place = task.prepare(bright_at(0, 0))
    found = task.decode(infer(DIGITS / "digits.onnx", inputs), place)
    assert isinstance(found, ImageClasses)
    assert len(found.classes) == 2


def test_ultralytics_classifiers_get_pixels_without_imagenets_mean(tmp_path: Path) -> None:
    """Their preprocessing only scales to 0..1."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["x"], ["p"], "pool"),
            helper.make_node("Flatten", ["p"], ["y"], "flat"),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    white = np.full((8, 8, 3), 255, np.uint8)
    for metadata, value in (({}, (1 - 0.485) / 0.229), ({**ULTRALYTICS, "task": "classify"}, 1)):
        helper.set_model_props(model, metadata)
        onnx.save(model, str(tmp_path / "classifier.onnx"))
        inputs, _ = opened(tmp_path, tmp_path / "classifier.onnx").prepare(white)
        assert inputs["x"][0, 0, 0, 0] == pytest.approx(value)


def test_a_file_input_is_fitted_as_the_task_fits_images(tmp_path: Path) -> None:
    model = write_detector(tmp_path)
    Image.fromarray(bright_at(8, 8)).save(tmp_path / "a.png")
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    lines = ("task: detect", "input: a.png", "labels: names.txt", "verify: false")
    task = opened(tmp_path, model, *lines)
    inputs, _ = task.prepare(bright_at(8, 8))
    cluster = load_cluster(tmp_path / "cluster.yaml")
    with ExitStack() as stack:
        request = Request(tmp_path / "cluster.yaml")
        results = open_results(request, cluster, cnn.read(model), tmp_path, stack)
        np.testing.assert_array_equal(results.inputs[0]["images"], inputs["images"])


def test_a_network_that_takes_no_image_says_so_at_the_first_image(tmp_path: Path) -> None:
    model = write_branches(tmp_path / "branches.onnx")
    task = opened(tmp_path, model)
    with pytest.raises(BadInputError, match="an image is one input, but the model has 2"):
        task.prepare(bright_at(0, 0))
    assert task.decode({}, None) is None  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="an image is one input"):
        opened(tmp_path, model, "task: detect")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("task: classify", "line 3, task: classify needs an output with one score per class"),
        ("task: guess", "line 3, task: must be 'auto', 'classify', 'detect'"),
        ("task: {kind: detect, confidence: 2}", "task.confidence: must be at most 1, not 2"),
        ("task: {kind: detect, score: 1}", "task.score: unknown key"),
        ("task: {kind: pose, points: [17, 4]}", "task.points: [17, 4] is impossible"),
        ("task: {kind: pose, points: 17}", "task.points: must be a list, not 17"),
        ("task: 3", "line 3, task: must be a kind such as detect, or a mapping with the key kind"),
        ("task: auto", "line 3, task: the model does not say what its outputs mean"),
    ],
)
def test_a_mistake_in_the_section_ends_with_a_sentence(
    tmp_path: Path, line: str, sentence: str
) -> None:
    with pytest.raises(BadInputError) as error:
        opened(tmp_path, write_detector(tmp_path), line)
    assert sentence in str(error.value)


def test_each_of_several_networks_has_its_own_task(tmp_path: Path) -> None:
    model = write_detector(tmp_path)
    target = tmp_path / "cluster.yaml"
    target.write_text(
        f"model: [{{path: {model.name}, name: gate}}, {{path: {model.name}, name: door}}]\n"
        "nodes: [{name: a}]\ntasks: {gate: {kind: detect, most: 1}, door: none}\n"
    )
    cluster = load_cluster(target)
    gate, door = (open_task(cluster, cnn.read(str(model)).with_name(n)) for n in ("gate", "door"))
    image = bright_at(20, 12)
    inputs, placement = gate.prepare(image)
    assert len(gate.decode(infer(model, inputs), placement).objects) == 1
    assert door.decode(infer(model, inputs), placement) is None
