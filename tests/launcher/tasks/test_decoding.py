"""Outputs of every form become boxes, points and masks in the source's pixels."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Tensor
from launcher.config.network import InputConfig
from launcher.errors import RunFailedError
from launcher.inputs.fitting import ImagePlacement, fit, image_format
from launcher.tasks.decoders import ClassDecoder, Decoder, MapDecoder, ObjectDecoder
from launcher.tasks.heads import MOST_CANDIDATES, GridHead
from launcher.tasks.predictions import NO_CLASS, FoundObjects
from launcher.tasks.suppression import FIRST, best_turned, gaussian_overlaps
from tests.launcher.tasks.forms import CLASSES, FORMS, SIZE, Scene, end_to_end, scene, yolov8

AS_IT_IS = ImagePlacement(*SIZE)
MODES = ("crop", "pad", "stretch", "letterbox")


def placed(width: int, height: int, mode: str) -> ImagePlacement:
    """Where an image lies in the network's input."""
    config = InputConfig(files=("x.png",), resize=mode)  # type: ignore[arg-type]
    tensor = Tensor("x", (1, 3, SIZE[1], SIZE[0]), "float32")
    form = image_format(tensor, config, is_classifier=False, where="input")
    return fit(np.zeros((height, width, 3), np.uint8), form)[1]


def decoder(head: object, kind: str = "detect", **keys: object) -> ObjectDecoder:
    settings = {"confidence": 0.25, "overlap": 0.45, "most": 300, **keys}
    return ObjectDecoder(kind, head, SIZE, **settings)  # type: ignore[arg-type]


def decoded(
    form: str, of: Scene, placement: ImagePlacement = AS_IT_IS, **keys: object
) -> FoundObjects:
    head, outputs = FORMS[form](of)
    return decoder(head, **keys).decode(outputs, placement)


def to_network(points: np.ndarray, place: ImagePlacement) -> np.ndarray:
    """Points (x, y) of the source in the network's pixels."""
    return points * (place.scale_x, place.scale_y) + (place.left, place.top)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(deadline=None, max_examples=8)
def test_any_box_in_the_source_comes_back(form: str, mode: str, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(2, 3000)), data.draw(st.integers(2, 3000))
    unit = st.floats(0, 1)
    x1, x2 = sorted((data.draw(unit) * width, data.draw(unit) * width))
    y1, y2 = sorted((data.draw(unit) * height, data.draw(unit) * height))
    place = placed(width, height, mode)
    box = np.array([x1, y1, x2, y2])
    in_network = to_network(box.reshape(2, 2), place).reshape(4)
    found = decoded(form, scene(in_network), place).objects
    if min(x2 - x1, y2 - y1) < 0.5:
        return  # too thin to be told from nothing in 32 bits
    assert len(found) == 1
    assert (found[0].number, round(found[0].score, 5)) == (1, 0.9)
    assert np.abs(np.array(found[0].box) - box).max() <= 0.5


@pytest.mark.parametrize("form", FORMS)
def test_boxes_are_clipped_to_the_image_and_left_out_beyond_it(form: str) -> None:
    beyond = [[-10, -5, 20, 30], [200, 10, 240, 20], [90, 60, 500, 400]]
    found = decoded(form, scene(beyond, classes=[1, 2, 3]))
    assert [(one.number, one.box) for one in found.objects] == [
        (1, (0, 0, pytest.approx(20, abs=1e-4), pytest.approx(30, abs=1e-4))),
        (3, (pytest.approx(90, abs=1e-4), pytest.approx(60, abs=1e-4), 96, 64)),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_objects_come_by_score_and_those_below_the_confidence_not_at_all(form: str) -> None:
    boxes = [[0, 0, 9, 9], [10, 0, 19, 9], [20, 0, 29, 9], [30, 0, 39, 9]]
    of = scene(boxes, classes=[1, 2, 3, 4], scores=[0.3, 0.2, 0.8, 0.5])
    assert [one.number for one in decoded(form, of).objects] == [3, 4, 1]
    assert [one.number for one in decoded(form, of, most=2).objects] == [3, 4]
    assert [one.number for one in decoded(form, of, confidence=0.4).objects] == [3, 4]


def overlaps_of(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of a box with others, as the textbook has it."""
    shared = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    shared = shared.clip(min=0).prod(axis=1)
    return shared / (np.prod(one[2:] - one[:2]) + (others[:, 2:] - others[:, :2]).prod(1) - shared)


def kept_by_the_textbook(of: Scene, confidence: float, overlap: float) -> list[int]:
    kept: list[int] = []
    for index in np.argsort(-of.scores):
        rivals = [other for other in kept if of.classes[other] == of.classes[index]]
        is_alone = (overlaps_of(of.boxes[index], of.boxes[rivals]) <= overlap).all()
        if of.scores[index] >= confidence and is_alone:
            kept.append(index)
    return kept


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", ["yolov8", "yolov5", "ssd"])
def test_overlapping_boxes_are_chosen_as_the_textbook_does(form: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 150))
    low = random.uniform(-60, 80, (count, 2))  # boxes left of the image must not meet other classes
    of = scene(
        np.concatenate([low, low + random.uniform(5, 60, (count, 2))], axis=1),
        random.integers(1, CLASSES, count),
        random.permutation(np.linspace(0.1, 0.95, count)),
    )
    far = ImagePlacement(10_000, 10_000, left=-100.0, top=-100.0)  # nothing is clipped
    found = decoded(form, of, far, overlap=0.4).objects
    chosen = kept_by_the_textbook(of, 0.25, 0.4)
    assert [one.number for one in found] == of.classes[chosen].tolist()
    expected = (of.boxes[chosen] + 100).reshape(-1, 4)
    boxes = np.array([one.box for one in found]).reshape(-1, 4)
    np.testing.assert_allclose(boxes, expected, atol=1e-3)


@pytest.mark.parametrize("most", [5, 2000])
def test_many_candidates_give_the_same_as_the_textbook(most: int) -> None:
    random = np.random.default_rng(3)
    low = random.uniform(0, 300, (2000, 2))
    of = scene(
        np.concatenate([low, low + random.uniform(5, 20, (2000, 2))], axis=1),
        scores=random.permutation(np.linspace(0.3, 0.95, 2000)),
    )
    found = decoded("yolov8", of, ImagePlacement(1000, 1000), most=most, overlap=0.1).objects
    chosen = kept_by_the_textbook(of, 0.25, 0.1)[:most]
    scores = [one.score for one in found]
    np.testing.assert_allclose(scores, of.scores[chosen], rtol=1e-6)


def test_only_the_best_of_very_many_candidates_are_looked_at() -> None:
    count = MOST_CANDIDATES + 500
    low = np.stack([np.arange(count) * 10.0, np.zeros(count)], axis=1)
    of = scene(np.concatenate([low, low + 5], axis=1), scores=np.linspace(0.3, 0.9, count))
    head, outputs = yolov8(of)
    kept = head.candidates(outputs, 0.25)
    assert len(kept) == MOST_CANDIDATES
    assert kept.scores.min() == pytest.approx(of.scores[500], abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", [yolov8, end_to_end])
def test_key_points_come_back_and_are_clipped(mode: str, form: object) -> None:
    place = placed(400, 300, mode)
    points = np.array([[150.5, 120.25], [222, 90], [5000, -5000]])
    values = np.concatenate([to_network(points, place), [[0.9], [0.5], [0.1]]], axis=1)
    box = to_network(np.array([[140.0, 80], [240, 190]]), place).reshape(1, 4)
    head, outputs = form(scene(box, extras=values.reshape(1, 9)))  # type: ignore[operator]
    (found,) = decoder(head, "pose", points=(3, 3)).decode(outputs, place).objects
    got = np.array([[point.x, point.y, point.score] for point in found.points])
    expected = [[150.5, 120.25, 0.9], [222, 90, 0.5], [400, 0, 0.1]]
    np.testing.assert_allclose(got, expected, atol=1e-2)


def test_a_turned_box_has_its_corners_and_the_box_around_them() -> None:
    turned = np.array([[40.0, 30, 20, 10]])
    head = GridHead("o", CLASSES, 1, is_turned=True)
    row = np.concatenate([turned, [[0, 0.9, 0, 0, 0]], [[np.pi / 6]]], axis=1)
    outputs = {"o": np.repeat(row, 9, axis=0).T[None].astype(np.float32)}
    (found,) = decoder(head, "obb").decode(outputs, AS_IT_IS).objects
    across, along = np.array([np.sqrt(3), 1]) * 5, np.array([-1, np.sqrt(3)]) * 2.5
    expected = {tuple(np.round([40, 30] + i * across + j * along, 2))
                for i in (-1, 1) for j in (-1, 1)}  # fmt: skip
    assert {(round(x, 2), round(y, 2)) for x, y in found.corners} == expected
    xs, ys = zip(*expected, strict=True)
    assert found.box == pytest.approx((min(xs), min(ys), max(xs), max(ys)), abs=0.01)


def common(one: np.ndarray, other: np.ndarray) -> float:
    """The integral of √(p · q) of two turned boxes (x, y, width, height, angle) as Gaussians."""
    x, y = np.meshgrid(np.linspace(-60, 60, 1201), np.linspace(-60, 60, 1201))

    def density(box: np.ndarray) -> np.ndarray:
        cos, sin = np.cos(box[4]), np.sin(box[4])
        across = (x - box[0]) * cos + (y - box[1]) * sin
        along = (y - box[1]) * cos - (x - box[0]) * sin
        width2, height2 = box[2:4] ** 2 / 12
        power = across**2 / width2 + along**2 / height2
        return np.exp(-power / 2) / (2 * np.pi * np.sqrt(width2 * height2))

    return float(np.sqrt(density(one) * density(other)).sum() * 0.1**2)


def test_the_overlap_of_turned_boxes_is_one_less_the_hellinger_distance() -> None:
    boxes = np.array([
        [0, 0, 20, 10, 0], [0, 0, 20, 10, 0.4], [3, -2, 14, 9, 1.2], [8, 8, 30, 6, -0.7],
        [0, 0, 20, 10, np.pi],
    ])  # fmt: skip
    found = gaussian_overlaps(boxes[:, :4], boxes[:, 4])
    expected = [[1 - np.sqrt(max(0, 1 - common(a, b))) for b in boxes] for a in boxes]
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_a_turned_box_is_dropped_for_any_better_one_that_it_overlaps() -> None:
    """Even for one that is dropped itself, and not for one of another class."""
    boxes = np.array([[x, 0.0, 20, 10] for x in (0, 6, 12, 12, 60)])
    angles, scores = np.zeros(5), np.array([0.9, 0.8, 0.7, 0.6, 0.95])
    shared = gaussian_overlaps(boxes, angles)
    assert shared[0, 1] == shared[1, 2] > 0.5 > shared[0, 2]
    classes = np.array([0, 0, 0, 1, 0])
    assert best_turned(boxes, angles, scores, classes, 0.5, 9).tolist() == [4, 0, 3]
    assert best_turned(boxes, angles, scores, classes, 0.5, 2).tolist() == [4, 0]
    flat = np.array([[0.0, 0, 20, 0]])
    assert best_turned(flat, angles[:1], scores[:1], classes[:1], 0.5, 9).tolist() == []


def test_of_many_turned_boxes_all_are_found_that_no_better_one_overlaps() -> None:
    random = np.random.default_rng(3)
    count = 2 * FIRST
    boxes = np.column_stack([random.uniform(0, 900, (count, 2)), random.uniform(9, 30, (count, 2))])
    angles, scores = random.uniform(0, np.pi, count), random.permutation(count) / count
    classes = random.integers(0, 2, count)
    shared = gaussian_overlaps(boxes, angles)
    is_better = (scores > scores[:, None]) & (classes == classes[:, None])
    wanted = np.flatnonzero(~((shared >= 0.5) & is_better).any(axis=1))
    wanted = wanted[np.argsort(-scores[wanted])]
    assert len(wanted) > FIRST
    found = best_turned(boxes, angles, scores, classes, 0.5, count)
    np.testing.assert_array_equal(found, wanted)
    few = best_turned(boxes, angles, scores, classes, 0.5, 300)
    np.testing.assert_array_equal(few, wanted[:300])


def test_turned_boxes_of_a_class_that_lie_on_each_other_are_one() -> None:
    head = GridHead("o", CLASSES, 1, is_turned=True)
    rows = np.zeros((6, 4 + CLASSES + 1), np.float32)
    rows[:, :4] = [40, 30, 40, 4]
    rows[:, 5] = [0.9, 0.8, 0.7, 0.6, 0, 0]
    rows[:, 6] = [0, 0, 0, 0, 0.85, 0]
    rows[:, -1] = np.radians([0, 2, 90, 180, 0, 0])  # the second and fourth lie on the first
    found = decoder(head, "obb").decode({"o": rows.T[None]}, AS_IT_IS).objects
    assert [(one.number, round(one.score, 2)) for one in found] == [(1, 0.9), (2, 0.85), (1, 0.7)]


def bilinear(values: np.ndarray, x: float, y: float) -> float:
    """The value at a point of a grid, whose cells' values are at their centres."""
    x, y = np.clip(x - 0.5, 0, values.shape[1] - 1), np.clip(y - 0.5, 0, values.shape[0] - 1)
    left, top = int(x), int(y)
    right, bottom = min(left + 1, values.shape[1] - 1), min(top + 1, values.shape[0] - 1)
    upper = values[top, left] * (1 - x + left) + values[top, right] * (x - left)
    lower = values[bottom, left] * (1 - x + left) + values[bottom, right] * (x - left)
    return float(upper * (1 - y + top) + lower * (y - top))


@pytest.mark.parametrize("mode", MODES)
def test_a_mask_is_what_its_prototypes_say_between_cells_and_within_its_box(mode: str) -> None:
    random = np.random.default_rng(5)
    place = placed(70, 50, mode)
    prototypes = random.normal(size=(1, 3, 16, 24)).astype(np.float32)
    weights = random.normal(size=(1, 3))
    box = np.array([[21.5, 12.0], [47.25, 33.75]])
    head, outputs = yolov8(scene(to_network(box, place).reshape(1, 4), extras=weights))
    task = decoder(head, "segment", prototypes="p")
    (found,) = task.decode({**outputs, "p": prototypes}, place).objects
    assert found.mask is not None
    assert (found.mask.left, found.mask.top, found.mask.pixels.shape) == (22, 12, (22, 26))
    values = np.tensordot(weights[0], prototypes[0], 1)
    for row in range(22):
        for column in range(26):
            ((x, y),) = to_network(np.array([[22 + column + 0.5, 12 + row + 0.5]]), place)
            value = bilinear(values, x / 4, y / 4)
            if abs(value) > 1e-4:
                assert found.mask.pixels[row, column] == (value > 0)


def test_an_object_whose_mask_has_no_pixel_is_left_out() -> None:
    of = scene([[0, 0, 20, 20], [30, 30, 50, 50]], classes=[1, 2], extras=np.array([[1], [-1]]))
    head, outputs = yolov8(of)
    task = decoder(head, "segment", prototypes="p")
    found = task.decode({**outputs, "p": np.ones((1, 1, 16, 24), np.float32)}, AS_IT_IS).objects
    assert [one.number for one in found] == [1]


def test_the_masks_of_an_image_are_bounded_together() -> None:
    huge = ImagePlacement(6000, 6000, SIZE[0] / 6000, SIZE[1] / 6000)
    boxes = [[0, 0, *SIZE], [0, 0, *SIZE], [10, 10, 20, 20]]
    of = scene(boxes, classes=[1, 2, 3], scores=[0.9, 0.8, 0.7], extras=np.ones((3, 1)))
    head, outputs = yolov8(of)
    task = decoder(head, "segment", prototypes="p")
    found = task.decode({**outputs, "p": np.ones((1, 1, 4, 6), np.float32)}, huge).objects
    assert [one.mask is not None for one in found] == [True, False, False]
    assert found[0].mask is not None
    assert found[0].mask.pixels.shape == (6000, 6000)
    assert "mask" not in found[1].as_json(6000, 6000)


def test_run_lengths_count_columns_and_say_what_coco_reads() -> None:
    random = np.random.default_rng(0)
    prototypes = np.where(random.random((1, 1, 64, 96)) < 0.5, -1, 1).astype(np.float32)
    for box in ([10, 0, 40, 64], [0, 0, 96, 64], [20, 20, 21, 22], [3, 5, 90, 60]):
        head, outputs = yolov8(scene([box], extras=np.ones((1, 1))))
        task = decoder(head, "segment", prototypes="p")
        value = task.decode({**outputs, "p": prototypes}, AS_IT_IS).as_json()
        mask = value["objects"][0]["mask"]
        assert mask["size"] == [64, 96]
        assert sum(mask["counts"]) == 64 * 96
        assert all(mask["counts"][1:])
        pixels = np.repeat(np.arange(len(mask["counts"])) % 2, mask["counts"]).reshape(96, 64).T
        expected = np.zeros((64, 96), int)
        inside = np.s_[box[1] : box[3], box[0] : box[2]]
        expected[inside] = prototypes[0, 0][inside] > 0
        np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("axis", [1, 3, None])
def test_classes_of_pixels_are_mapped_to_the_source(mode: str, axis: int | None) -> None:
    width, height = 150, 120
    place = placed(width, height, mode)
    grid = np.random.default_rng(1).integers(0, 4, (1, 16, 24))
    scores = {1: np.eye(4)[grid].transpose(0, 3, 1, 2), 3: np.eye(4)[grid], None: grid}[axis]
    found = MapDecoder("o", axis, SIZE).decode({"o": scores}, place)
    for y in range(0, height, 7):
        for x in range(0, width, 7):
            (at,) = to_network(np.array([[x + 0.5, y + 0.5]]), place) / 4
            column, row = map(int, np.floor(at))
            is_seen = 0 <= column < 24 and 0 <= row < 16
            assert found.classes[y, x] == (grid[0, row, column] if is_seen else NO_CLASS)
    json.dumps(found.as_json(), allow_nan=False)


def test_the_first_of_the_best_classes_is_taken_and_none_where_a_score_is_nan() -> None:
    scores = np.random.default_rng(2).integers(0, 3, (1, 5, 8, 12)).astype(np.float32)
    expected = scores[0].argmax(axis=0)
    scores[0, 3, 0, 0] = np.nan
    found = MapDecoder("o", 1, (12, 8)).decode({"o": scores}, ImagePlacement(12, 8)).classes
    assert found[0, 0] == NO_CLASS
    np.testing.assert_array_equal(found.reshape(-1)[1:], expected.reshape(-1)[1:])


def test_one_score_per_pixel_is_that_of_class_1() -> None:
    probabilities = np.array([[[[0.2, 0.8], [0.6, 0.4]]]])
    for values in (probabilities, np.log(probabilities / (1 - probabilities))):
        found = MapDecoder("o", 1, (2, 2), ("no", "yes")).decode(
            {"o": values}, ImagePlacement(2, 2)
        )
        assert found.classes.tolist() == [[0, 1], [1, 0]]
    value = found.as_json()
    assert value["classes"][1] == {
        "class": 1, "name": "yes", "share": 0.5, "mask": {"size": [2, 2], "counts": [1, 2, 1]}
    }  # fmt: skip


def test_a_classifiers_classes_have_names_and_scores() -> None:
    task = ClassDecoder("o", 2, ("cat", "dog"))
    value = task.decode({"o": np.array([[0.2, 0.5, 0.3]])}, AS_IT_IS).as_json()
    assert value == {
        "kind": "classify",
        "classes": [{"class": 1, "name": "dog", "score": 0.5}, {"class": 2, "score": 0.3}],
    }


def test_predictions_are_json_with_rounded_numbers() -> None:
    head, outputs = yolov8(scene([[1.23456, 2, 30, 40]], scores=0.87654321))
    task = replace(decoder(head), names=("background", "person"))
    assert task.decode(outputs, AS_IT_IS).as_json() == {
        "kind": "detect",
        "width": 96,
        "height": 64,
        "objects": [
            {"class": 1, "name": "person", "score": 0.8765, "box": [1.23, 2.0, 30.0, 40.0]}
        ],
    }


def every_decoder() -> list[tuple[Decoder, dict[str, np.ndarray]]]:
    of = scene([[1, 1, 30, 30], [5, 5, 40, 40]], classes=[1, 2])
    with_extras = scene(of.boxes, of.classes, extras=np.ones((2, 6)))
    made: list[tuple[Decoder, dict[str, np.ndarray]]] = []
    for form in FORMS.values():
        head, outputs = form(of)
        made.append((decoder(head), outputs))
    head, outputs = yolov8(with_extras)
    made.append((decoder(head, "pose", points=(2, 3)), outputs))
    outputs = {**outputs, "p": np.ones((1, 6, 16, 24), np.float32)}
    made.append((decoder(head, "segment", prototypes="p"), outputs))
    made.append((decoder(replace(head, is_turned=True), "obb"), outputs))
    made.append((ClassDecoder("o", 3), {"o": np.ones((1, 7), np.float32)}))
    made.append((MapDecoder("o", 1, SIZE), {"o": np.ones((1, 3, 16, 24), np.float32)}))
    made.append((MapDecoder("o", None, SIZE), {"o": np.ones((1, 16, 24), np.int64)}))
    return made


DECODERS = every_decoder()


@given(st.integers(0, len(DECODERS) - 1), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=300)
def test_garbage_is_an_error_or_no_prediction_and_never_a_crash(which: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    task, outputs = DECODERS[which][0], dict(DECODERS[which][1])
    for name in list(outputs):
        array = outputs[name].copy()
        match int(random.integers(7)):
            case 0:
                special = (np.nan, np.inf, -np.inf, 3e38, -3e38, 0, -1)
                holes = random.random(array.shape) < 0.3
                if array.dtype.kind == "f":
                    array[holes] = random.choice(special, int(holes.sum()))
            case 1:
                array = array[..., : int(random.integers(array.shape[-1] + 1))]
            case 2:
                array = array.reshape(-1)
            case 3:
                array = np.empty((0, *array.shape[1:]), array.dtype)
            case 4:
                array = array.astype(random.choice(["float16", "float64", "int8", "bool", "S3"]))
            case 5:
                with np.errstate(all="ignore"):
                    array = (array * 10.0 ** random.integers(-30, 30)).astype(array.dtype)
        outputs[name] = array
    if random.random() < 0.1:
        outputs.popitem()
    try:
        found = task.decode(outputs, placed(70, 50, "letterbox"))
    except RunFailedError:
        return
    json.dumps(found.as_json(), allow_nan=False)
