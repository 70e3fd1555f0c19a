"""What is drawn where; and the kind images, whose files have it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdf_edge.testing.sink_contract import SinkContract, made_result
from launcher.config.ends.sink import FrameResult, Predictions, ResultRefusedError, SinkConfig
from launcher.sinks.drawing import annotated, color_of, encoded
from launcher.sinks.images import ImagesConfig
from launcher.tasks.predictions import (
    NO_CLASS,
    ClassMap,
    FoundObject,
    FoundObjects,
    ImageClasses,
    KeyPoint,
    ObjectMask,
    ScoredClass,
)
from nodes.protocol.payload import Array
from tests.sinks.disks import full_disk

WIDTH, HEIGHT = 200, 120


def drawn(predictions: Predictions | None, width: int = WIDTH, height: int = HEIGHT) -> Array:
    """What is drawn on a black image."""
    image = np.zeros((height, width, 3), np.uint8)
    image.flags.writeable = False
    return annotated(FrameResult(0, 0.0, {}, predictions=predictions, image=image))


def objects(*found: FoundObject) -> FoundObjects:
    return FoundObjects("detect", WIDTH, HEIGHT, found)


BOX = (50.0, 40.0, 150.0, 100.0)


def test_a_box_is_drawn_where_the_object_is_in_the_colour_of_its_class() -> None:
    image = drawn(objects(FoundObject(3, "cat", 0.9, BOX)))
    assert tuple(image[100, 100]) == color_of(3)
    assert tuple(image[70, 50]) == tuple(image[70, 150]) == color_of(3)
    assert not image[45:98, 55:145].any()
    assert not image[103:].any()
    assert image[20:38, 50:90].any(), "the label above"


def test_a_label_of_an_object_at_the_edge_is_within_the_image() -> None:
    image = drawn(objects(FoundObject(3, "cat", 0.9, (190.0, 0.0, 250.0, 30.0))))
    assert tuple(image[0, 199]) == color_of(3)


def test_masks_points_and_turned_boxes_are_drawn() -> None:
    mask = ObjectMask(60, 50, np.ones((20, 30), bool))
    image = drawn(objects(FoundObject(1, "", 0.5, BOX, mask=mask)))
    assert image[60, 70].any()
    assert image[60, 70].max() < 255
    assert not image[80, 100].any()
    points = (KeyPoint(100.0, 70.0, 0.9),)
    image = drawn(objects(FoundObject(1, "", 0.5, BOX, points=points)))
    assert tuple(image[70, 100]) == color_of(1)
    corners = ((100.0, 40.0), (130.0, 70.0), (100.0, 100.0), (70.0, 70.0))
    image = drawn(objects(FoundObject(1, "", 0.5, BOX, corners=corners)))
    assert tuple(image[85, 115]) == color_of(1)
    assert not image[100, 60:90].any()


def test_the_classes_of_an_image_are_listed() -> None:
    image = drawn(ImageClasses((ScoredClass(1, "a", 0.9), ScoredClass(2, "ö" * 500, 0.1))))
    assert tuple(image[0, 0]) == color_of(1)
    assert (image.reshape(-1, 3) == color_of(2)).all(axis=1).any()


def test_the_pixels_of_each_class_are_coloured_and_others_are_not() -> None:
    classes = np.full((HEIGHT, WIDTH), NO_CLASS, np.uint16)
    classes[90:, :100] = 1
    image = drawn(ClassMap(classes, ("road", "sky")))
    assert image[100, 50].any()
    assert not image[100, 150].any()


def test_without_predictions_the_image_is_the_sources() -> None:
    assert not drawn(None).any()


def test_what_has_no_image_is_refused() -> None:
    with pytest.raises(ResultRefusedError, match="frame 0: its source gives no image"):
        annotated(FrameResult(0, 0.0, {}))


def test_an_image_that_no_jpeg_can_have_is_refused() -> None:
    image = np.zeros((1, 70_000, 3), np.uint8)
    with pytest.raises(ResultRefusedError, match=r"no .jpg file can have 70000 × 1 pixels"):
        encoded(FrameResult(0, 0.0, {}, image=image), ".jpg", 90)


NUMBERS = st.one_of(st.floats(-300, 300), st.sampled_from([1e30, -1e30, float("nan")]))


@st.composite
def found_objects(draw: st.DrawFn) -> FoundObject:
    box = tuple(draw(NUMBERS) for _ in range(4))
    size = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    mask = ObjectMask(draw(st.integers(-50, 250)), draw(st.integers(-50, 150)), np.ones(size, bool))
    return FoundObject(
        draw(st.integers(-5, 10**6)),
        draw(st.text(max_size=80)),
        draw(NUMBERS),
        box,  # type: ignore[arg-type]
        tuple(KeyPoint(draw(NUMBERS), draw(NUMBERS)) for _ in range(draw(st.integers(0, 3)))),
        mask=draw(st.sampled_from([None, mask])),
    )


@settings(max_examples=150)
@given(found=found_objects(), width=st.integers(1, 300), height=st.integers(1, 300))
def test_whatever_a_network_finds_can_be_drawn(found: FoundObject, width: int, height: int) -> None:
    assert drawn(objects(found), width, height).shape == (height, width, 3)


class TestImages(SinkContract):
    def config(self, place: Path) -> SinkConfig:
        return ImagesConfig(path="out", format="png")

    def bounded(self, place: Path, most_bytes: int) -> SinkConfig:
        return ImagesConfig(path="out", keep_bytes=most_bytes // 10)

    def delivered(self, place: Path) -> list[int]:
        found = sorted((place / "out").glob("*.png"))
        return [int(cv2.imread(str(path))[0, 0, 0]) for path in found]

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        with full_disk():
            yield

    def test_files_stay_within_their_bound(self, tmp_path: Path) -> None:
        """Images of one colour are small: a tenth of the bound holds all the more."""
        config = ImagesConfig(path="out", keep_bytes=9000)
        with self.opened(config, tmp_path) as sink:
            for index in range(100):
                sink.write(made_result(index))
                sizes = [path.stat().st_size for path in (tmp_path / "out").glob("*.jpg")]
                assert sum(sizes) <= 9000
        assert sum(sizes) > 4000


def test_an_image_file_has_the_frames_number_and_name_and_colours(tmp_path: Path) -> None:
    image = np.zeros((8, 8, 3), np.uint8)
    image[..., 0] = 200
    for suffix, name in (("jpeg", "000007-a_gate.jpg"), ("png", "000007-a_gate.png")):
        sink = ImagesConfig(path="out", format=suffix).open(tmp_path)
        sink.write(replace(made_result(7), name="a gate.jpg", image=image))
        read = cv2.imread(str(tmp_path / "out" / name))
        assert read is not None
        assert abs(read[4, 4].astype(int) - (0, 0, 200)).max() < 8
        sink.close()
