"""Any form of an image, and any source of images, becomes pictures of the same pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from launcher.config.ends.source import SourceFrame
from launcher.errors import BadInputError
from launcher.inputs.images import read_pixels
from launcher.streaming.predicting import (
    ImagePrediction,
    Pictures,
    PredictionStream,
    picture_of,
    prediction,
)
from launcher.tasks.opening import Task
from launcher.tasks.predictions import (
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    KeyPoint,
    ObjectMask,
    ScoredClass,
)
from tests.launcher.tasks.test_open_task import (
    ULTRALYTICS,
    bright_at,
    infer,
    opened,
    write_detector,
)

WAIT_S = 20.0


def noise(height: int = 20, width: int = 30, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8)


def encoded(pixels: np.ndarray, suffix: str = "PNG", **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, suffix, **options)
    return content.getvalue()


# ---------------------------------------------------------------- one image


def test_every_form_of_an_image_gives_the_same_pixels(tmp_path: Path) -> None:
    pixels, path = noise(), tmp_path / "a.png"
    path.write_bytes(encoded(pixels))
    with_opacity = np.dstack([pixels, np.full(pixels.shape[:2], 7, np.uint8)])
    opened_picture = Image.open(path)
    for given in (
        path, str(path), path.read_bytes(), bytearray(path.read_bytes()),
        memoryview(path.read_bytes()), Image.fromarray(pixels), opened_picture, pixels,
        with_opacity, Image.fromarray(with_opacity),
    ):  # fmt: skip
        found, _ = picture_of(given)
        np.testing.assert_array_equal(found, pixels)
    assert picture_of(str(path))[1] == picture_of(opened_picture)[1] == "a.png"
    assert picture_of(pixels)[1] == ""


def test_a_grey_array_is_an_image() -> None:
    grey = noise()[:, :, 0]
    for given in (grey, grey[:, :, None], Image.fromarray(grey)):
        np.testing.assert_array_equal(picture_of(given)[0], np.dstack([grey] * 3))


def test_a_picture_of_pillow_is_turned_upright_as_its_file_is(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = tmp_path / "turned.jpg"
    path.write_bytes(encoded(noise(), "JPEG", exif=exif))
    assert read_pixels(path).shape == (30, 20, 3)
    for given in (path, path.read_bytes(), Image.open(path)):
        np.testing.assert_array_equal(picture_of(given)[0], read_pixels(path))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("missing.png", "there is no file 'missing.png'; check the path"),
        (f"{__file__}/a.png", "/a.png: cannot be read as an image: Not a directory$"),
        ("clip.mp4", "is not one image; predictions"),
        ("rtsp://camera/1", "is not one image; predictions"),
        (".", "is a folder; predictions"),
        ("x" * 300 + ".png", "cannot be read as an image: File name too long$"),
        (b"no image", "the image cannot be read: it is neither a PNG nor a JPEG"),
        (
            Image.new("1", (70_000, 1)),
            "the image cannot be read: it has 70000×1 pixels, but at most",
        ),
        (3, "an image is a path, the bytes of a PNG or JPEG file, .* not int"),
        (None, "not NoneType"),
    ],
)
def test_what_is_not_an_image_is_a_sentence(given: object, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        picture_of(given)


# ---------------------------------------------------------------- sources


def all_of(given: object) -> list[tuple[np.ndarray, str, int]]:
    return [(*each.picture(), each.index) for each in Pictures(given)]


def test_a_folder_a_glob_and_an_iterable_give_images_in_order(tmp_path: Path) -> None:
    for number, name in enumerate(("b.png", "a.PNG", "c.png")):
        (tmp_path / name).write_bytes(encoded(noise(seed=number)))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image")
    found = all_of(tmp_path)
    assert [(name, index) for _, name, index in found] == [("a.PNG", 0), ("b.png", 1), ("c.png", 2)]
    np.testing.assert_array_equal(found[1][0], noise(seed=0))
    assert [name for _, name, _ in all_of(str(tmp_path / "*.png"))] == ["b.png", "c.png"]
    assert [name for _, name, _ in all_of(tmp_path / "c.png")] == ["c.png"]
    assert len(all_of([noise(), tmp_path / "c.png", encoded(noise())])) == 3
    assert len(all_of(np.stack([noise(), noise()]))) == 2
    assert len(all_of(noise())) == len(all_of(encoded(noise()))) == 1


def write_video(path: Path, frames: int = 5) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 32))
    assert writer.isOpened()
    for number in range(frames):
        writer.write(np.full((32, 64, 3), 40 * number, np.uint8))
    writer.release()
    return path


def test_a_video_gives_its_frames_with_their_times(tmp_path: Path) -> None:
    path = write_video(tmp_path / "clip.avi")
    for given in (path, str(path), {"kind": "video", "url": str(path)}):
        found = list(Pictures(given))
        assert [each.index for each in found] == [0, 1, 2, 3, 4]
        assert [each.media_s for each in found] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
        assert found[3].picture()[0].mean() == pytest.approx(120, abs=4)


class Camera:
    """A live source that gives frames until it is closed, some of them with arrays."""

    is_live = True
    description = "the camera"

    def __init__(self, data: object = None) -> None:
        self.is_closed = False
        self.data = noise() if data is None else data

    def frames(self) -> Iterator[SourceFrame]:
        while not self.is_closed:
            yield SourceFrame(self.data, 0.0)  # type: ignore[arg-type]

    def close(self) -> None:
        self.is_closed = True


def test_a_source_of_a_program_is_closed_when_nobody_takes_more() -> None:
    camera = Camera()
    pictures = Pictures(camera)
    numbers = [each.index for each, _ in zip(pictures, range(3), strict=False)]
    assert numbers == sorted(set(numbers))
    pictures.close()
    assert camera.is_closed


def test_arrays_of_a_source_are_not_images() -> None:
    pictures = Pictures(Camera({"x": np.zeros(3)}))
    with pytest.raises(BadInputError, match="the camera: holds arrays, and not an image"):
        next(iter(pictures))
    pictures.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("/nowhere/*.png", "no file matches"),
        (3.5, "images come from a folder, .* not float"),
        ({"kind": "tape"}, "the source.*there is no kind of source 'tape'"),
        ({"kind": "video"}, "the source url: Field required"),
        ({"kind": "folder", "path": "/nowhere"}, "there is no folder"),
        ("/nowhere/clip.mp4", "/nowhere/clip.mp4"),
        ("x" * 5000, "is not a path"),
        (True, "images come from a folder, .* not bool"),
        (["/nowhere/a.png"], "there is no file '/nowhere/a.png'"),
    ],
)
def test_an_origin_that_gives_no_images_is_a_sentence(given: object, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        all_of(given)


def test_a_folder_without_images_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no images"):
        Pictures(tmp_path)


# ---------------------------------------------------------------- predictions


class Computed:
    """Submits frames to the detector, which ONNX's reference computes at once."""

    def __init__(self, model: Path) -> None:
        self.model, self.submitted = model, 0

    def __call__(
        self, frame: Mapping[str, np.ndarray], /, *, withdrawal: object
    ) -> Future[dict[str, np.ndarray]]:
        assert withdrawal is not None
        self.submitted += 1
        future: Future[dict[str, np.ndarray]] = Future()
        future.set_result(infer(self.model, frame))
        return future


def detector(folder: Path) -> tuple[Task, Computed]:
    model = write_detector(folder, ULTRALYTICS)
    return opened(folder, model), Computed(model)


def test_the_predictions_of_a_folder_are_those_of_its_images(tmp_path: Path) -> None:
    task, computed = detector(tmp_path)
    (tmp_path / "in").mkdir()
    for number, x in enumerate((0, 16, 48)):
        (tmp_path / "in" / f"{number}.png").write_bytes(encoded(bright_at(x, 16)))
    found = list(PredictionStream(task, tmp_path / "in", computed, most=2))
    assert [(each.index, each.name) for each in found] == [(0, "0.png"), (1, "1.png"), (2, "2.png")]
    for each, x in zip(found, (0, 16, 48), strict=True):
        assert each.boxes.tolist() == [[x, 16, x + 16, 32]]
        assert (each.kind, each.names, each.classes.tolist()) == ("detect", ("dog",), [1])
        assert each.scores.tolist() == [1.0]
        np.testing.assert_array_equal(each.image, bright_at(x, 16))
        assert set(each.outputs) == {"o"}


def test_an_image_that_cannot_be_read_comes_after_those_before_it(tmp_path: Path) -> None:
    task, computed = detector(tmp_path)
    found = []
    with pytest.raises(BadInputError, match="neither a PNG nor a JPEG"):  # noqa: PT012
        for each in PredictionStream(
            task, [bright_at(0, 0), b"broken", bright_at(0, 0)], computed, 4
        ):
            found.append(each)  # noqa: PERF402 - until it raises
    assert len(found) == 1


def test_the_traceback_of_a_wrong_path_is_that_of_the_program(tmp_path: Path) -> None:
    task, computed = detector(tmp_path)
    with pytest.raises(BadInputError) as wrong:
        list(PredictionStream(task, ["/nowhere/a.png"], computed, 4))
    assert [frame.name for frame in wrong.traceback][-1] == "__iter__"
    assert wrong.value.__suppress_context__


def test_a_program_that_takes_no_more_closes_the_camera(tmp_path: Path) -> None:
    task, computed = detector(tmp_path)
    camera = Camera(bright_at(16, 16))
    predictions = iter(PredictionStream(task, camera, computed, most=2))
    assert next(predictions).boxes.tolist() == [[16, 16, 32, 32]]
    predictions.close()  # type: ignore[attr-defined]
    assert camera.is_closed
    assert computed.submitted <= 4


def test_a_network_without_a_meaning_is_refused_with_the_key_to_write(tmp_path: Path) -> None:
    task = opened(tmp_path, write_detector(tmp_path))
    with pytest.raises(BadInputError, match=r"task: the model does not say .*; write one of"):
        PredictionStream(task, [bright_at(0, 0)], Computed(tmp_path), 1)
    task = opened(tmp_path, write_detector(tmp_path, ULTRALYTICS), "task: none")
    with pytest.raises(BadInputError, match="task: none: the outputs are left as they are"):
        task.check_predicts()


# ---------------------------------------------------------------- values

IMAGE = np.zeros((40, 60, 3), np.uint8)


def of(found: Any) -> ImagePrediction:
    return ImagePrediction(IMAGE, found, {}, "gate.jpg", 3, 0.5)


def test_the_values_of_objects_with_masks_and_points() -> None:
    mask = ObjectMask(10, 5, np.ones((4, 6), np.bool_))
    first = FoundObject(2, "dog", 0.75, (10, 5, 16, 9), (KeyPoint(11, 6, 0.5),), (), mask)
    second = FoundObject(0, "", 0.5, (0, 0, 3, 3), (KeyPoint(1, 2, 0.25),))
    found = of(FoundObjects("pose", 60, 40, (first, second)))
    assert (found.kind, len(found), bool(found)) == ("pose", 2, True)
    np.testing.assert_array_equal(found.boxes, [[10, 5, 16, 9], [0, 0, 3, 3]])
    np.testing.assert_array_equal(found.points, [[[11, 6, 0.5]], [[1, 2, 0.25]]])
    assert found.names == ("dog", "")
    assert found.corners.shape == (2, 0, 2)
    assert found.masks.shape == (2, 40, 60)
    assert found.masks[0, 5:9, 10:16].all()
    assert found.masks.sum() == 24
    assert found.class_map is None
    assert repr(found) == "<ImagePrediction 'gate.jpg', 60×40: pose 1 dog, 1 class 0>"
    assert found.to_dict() == {
        "index": 3, "name": "gate.jpg", "media_s": 0.5, **found.found.as_json(),
    }  # fmt: skip


def test_the_values_of_an_image_without_objects_have_their_shapes() -> None:
    found = of(FoundObjects("detect", 60, 40, ()))
    assert (len(found), bool(found)) == (0, True)
    shapes = [found.boxes.shape, found.scores.shape, found.classes.shape, found.masks.shape]
    assert shapes == [(0, 4), (0,), (0,), (0, 40, 60)]
    assert (found.points.shape, found.corners.shape) == ((0, 0, 3), (0, 0, 2))
    assert repr(found).endswith("detect nothing>")


def test_the_corners_of_turned_boxes() -> None:
    corners = ((1.0, 0.0), (2.0, 1.0), (1.0, 2.0), (0.0, 1.0))
    found = of(FoundObjects("obb", 60, 40, (FoundObject(0, "ship", 1, (0, 0, 2, 2), (), corners),)))
    np.testing.assert_array_equal(found.corners, [corners])


def test_the_values_of_a_classifier_and_of_classes_of_pixels() -> None:
    found = of(ImageClasses((ScoredClass(4, "cat", 0.75), ScoredClass(1, "", 0.25))))
    assert (found.kind, found.names) == ("classify", ("cat", ""))
    assert (found.classes.tolist(), found.scores.tolist()) == ([4, 1], [0.75, 0.25])
    assert found.boxes.shape == (0, 4)
    areas = np.zeros((40, 60), np.uint16)
    areas[:10] = 1
    found = of(ClassMap(areas, ("sky", "road")))
    assert (found.kind, found.names) == ("semantic", ("sky", "road"))
    assert found.classes.tolist() == [0, 1]
    assert found.class_map is areas
    assert repr(found).endswith("semantic sky, road>")


def test_a_plot_is_a_picture_with_the_box_on_it(tmp_path: Path) -> None:
    task, computed = detector(tmp_path)
    image = bright_at(16, 16)
    inputs, placement = task.prepare(image)
    found = prediction(task, (image, ""), placement, infer(computed.model, inputs))
    plot = found.plot()
    assert isinstance(plot, Image.Image)
    assert plot.size == (64, 32)
    assert (np.asarray(plot) != image).any()
    np.testing.assert_array_equal(found.image, bright_at(16, 16))
    shown = Image.open(io.BytesIO(found._repr_jpeg_()))
    assert (shown.format, shown.size) == ("JPEG", (64, 32))
