"""Files become frames of exactly the shape and dtype that the network takes, or a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cnn.network import Network
from launcher.config.network import InputConfig
from launcher.errors import BadInputError
from launcher.inputs.fitting import IMAGENET_MEAN, IMAGENET_STD
from launcher.inputs.frames import KEPT_BYTES, Inputs, open_inputs
from tests.launcher.models import network_of


def opened(
    network: Network,
    folder: Path,
    *files: str,
    frames: int | None = None,
    seed: int = 0,
    is_classifier: bool = False,
    **settings: object,
) -> Inputs:
    config = InputConfig(files=files, **settings)  # type: ignore[arg-type]
    return open_inputs(
        network,
        config,
        folder,
        frames=frames,
        seed=seed,
        is_classifier=is_classifier,
        where="cluster.yaml, line 5, input",
    )


def paint(path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(path)


@pytest.fixture
def red(tmp_path: Path) -> Path:
    """A folder with red.png: 4 × 6 pixels, all (255, 0, 51)."""
    paint(tmp_path / "red.png", np.full((4, 6, 3), (255, 0, 51), np.uint8))
    return tmp_path


@pytest.mark.parametrize("name", ["cam[1]", "a*b?", "[!x]", "[", "plain"])
def test_a_folder_of_any_name_can_have_the_inputs(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is that of cluster.yaml, or the pattern names it."""
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "cam1").mkdir()
    for number in range(2):
        np.save(folder / f"{number}[x].npy", np.zeros((1, 3, 4, 6), np.float32))
    network = network_of((1, 3, 4, 6))
    monkeypatch.chdir(folder)
    for base, pattern in (
        (folder, "*.npy"),
        (tmp_path, f"{name}/*.npy"),
        (tmp_path, f"{folder}/*.npy"),
        (tmp_path, f"{name}/?[[]x[]].npy"),
        (Path(), "*.npy"),
    ):
        assert len(opened(network, base, pattern)) == 2, (base, pattern)
    assert len(opened(network, folder, "1[x].npy")) == 1


def test_pixels_are_scaled_to_one(red: Path) -> None:
    frame = opened(network_of((1, 3, 4, 6)), red, "red.png")[0]["x"]
    assert frame.shape == (1, 3, 4, 6)
    assert frame.dtype == np.float32
    np.testing.assert_allclose(frame[0, :, 0, 0], (1, 0, 0.2), rtol=1e-6)


def test_a_network_with_channels_last_gets_them_last(red: Path) -> None:
    frame = opened(network_of((1, 4, 6, 3)), red, "red.png")[0]["x"]
    assert frame.shape == (1, 4, 6, 3)
    np.testing.assert_allclose(frame[0, 0, 0], (1, 0, 0.2), rtol=1e-6)


def test_a_classifier_of_photographs_gets_imagenets_normalisation(red: Path) -> None:
    inputs = opened(network_of((1, 3, 4, 6)), red, "red.png", is_classifier=True)
    wanted = (np.array((1, 0, 0.2)) - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(inputs[0]["x"][0, :, 0, 0], wanted, rtol=1e-5)
    assert "ImageNet's mean and deviation" in inputs.description


def test_what_the_user_sets_replaces_that_normalisation(red: Path) -> None:
    inputs = opened(
        network_of((1, 3, 4, 6)), red, "red.png", is_classifier=True, scale=255.0, std=2.0
    )
    np.testing.assert_allclose(inputs[0]["x"][0, :, 0, 0], (127.5, 0, 25.5), rtol=1e-6)


def test_blue_first(red: Path) -> None:
    frame = opened(
        network_of((1, 3, 4, 6)), red, "red.png", is_classifier=True, colors="bgr"
    )[0]["x"]  # fmt: skip
    wanted = ((np.array((1, 0, 0.2)) - IMAGENET_MEAN) / IMAGENET_STD)[::-1]
    np.testing.assert_allclose(frame[0, :, 0, 0], wanted, rtol=1e-5)


def test_bytes_are_left_as_they_are_for_a_uint8_input(red: Path) -> None:
    frame = opened(network_of((1, 4, 6, 3), dtype="uint8"), red, "red.png")[0]["x"]
    assert frame.dtype == np.uint8
    assert tuple(frame[0, 0, 0]) == (255, 0, 51)


def test_half_precision(red: Path) -> None:
    frame = opened(network_of((1, 3, 4, 6), dtype="float16"), red, "red.png")[0]["x"]
    assert frame.dtype == np.float16


@pytest.mark.parametrize("shape", [(1, 1, 4, 6), (1, 4, 6, 1), (4, 6)])
def test_one_channel_is_grey(red: Path, shape: tuple[int, ...]) -> None:
    frame = opened(network_of(shape), red, "red.png", is_classifier=True)[0]["x"]
    assert frame.shape == shape
    np.testing.assert_allclose(frame, (0.299 * 255 + 0.114 * 51) / 255, atol=1 / 255)


def test_sixteen_bits_of_grey_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    paint(tmp_path / "grey.png", np.full((4, 6), 0x8000, np.uint16))
    frame = opened(network_of((1, 1, 4, 6)), tmp_path, "grey.png")[0]["x"]
    np.testing.assert_allclose(frame, 0.5, atol=1 / 255)


@pytest.mark.parametrize(("resize", "black"), [("crop", 0.0), ("stretch", 0.0), ("pad", 0.5)])
def test_other_proportions(tmp_path: Path, resize: str, black: float) -> None:
    paint(tmp_path / "wide.png", np.full((8, 16, 3), 255, np.uint8))
    frame = opened(network_of((1, 3, 8, 8)), tmp_path, "wide.png", resize=resize)[0]["x"]
    assert np.mean(frame == 0) == black


def test_cropping_keeps_the_middle(tmp_path: Path) -> None:
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 255
    paint(tmp_path / "wide.png", pixels)
    frame = opened(network_of((1, 3, 8, 8)), tmp_path, "wide.png")[0]["x"]
    assert frame.min() == 1


def test_frames_repeat_the_files_in_order(tmp_path: Path) -> None:
    for value in (2, 0, 1):
        paint(tmp_path / f"{value}.png", np.full((4, 4, 3), value * 51, np.uint8))
    inputs = opened(network_of((1, 3, 4, 4)), tmp_path, "*.png", frames=5)
    assert len(inputs) == 5
    assert inputs.distinct == 3
    assert [round(float(inputs[i]["x"].max() * 5)) for i in range(5)] == [0, 1, 2, 0, 1]
    assert [inputs.items[inputs.source(i)].name for i in (0, 4)] == ["0.png", "1.png"]
    with pytest.raises(IndexError):
        inputs[5]


def test_without_a_number_of_frames_each_input_is_one_frame(red: Path) -> None:
    assert len(opened(network_of((1, 3, 4, 6)), red, "*.png")) == 1


@pytest.mark.parametrize(
    ("stored", "frames"),
    [((1, 2, 3), 1), ((2, 3), 1), ((7, 2, 3), 7), ((7, 1, 2, 3), 7), ((1, 1, 2, 3), 1)],
)
def test_an_array_is_a_frame_or_a_stack_of_frames(
    tmp_path: Path, stored: tuple[int, ...], frames: int
) -> None:
    array = np.arange(np.prod(stored), dtype=np.float64).reshape(stored)
    np.save(tmp_path / "x.npy", array)
    inputs = opened(network_of((1, 2, 3)), tmp_path, "x.npy")
    assert len(inputs) == frames
    found = np.stack([inputs[i]["x"] for i in range(frames)])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found.reshape(-1), array.reshape(-1))


def test_an_archive_holds_an_array_for_each_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x0=np.zeros((3, 2), "f4"), x1=np.ones((3, 2), "f4"))
    inputs = opened(network_of((1, 2), inputs=2), tmp_path, "both.npz")
    assert len(inputs) == 3
    assert {name: array.max() for name, array in inputs[2].items()} == {"x0": 0, "x1": 1}


def test_random_input_comes_from_the_seed(tmp_path: Path) -> None:
    network = network_of((1, 2, 3), inputs=2)
    first, same = (opened(network, tmp_path, "random", seed=1, frames=3) for _ in range(2))
    other = opened(network, tmp_path, "random", seed=2, frames=3)
    np.testing.assert_array_equal(first[2]["x0"], same[2]["x0"])
    assert not np.array_equal(first[2]["x0"], other[2]["x0"])
    assert not np.array_equal(first[2]["x0"], first[1]["x0"])
    assert not np.array_equal(first[2]["x0"], first[2]["x1"])


@pytest.mark.parametrize("dtype", ["float16", "float64", "uint8", "int64", "bool"])
def test_random_input_has_the_networks_dtype(tmp_path: Path, dtype: str) -> None:
    frame = opened(network_of((1, 64), dtype=dtype), tmp_path, "random")[0]["x"]
    assert frame.dtype == np.dtype(dtype)
    assert len(np.unique(frame)) > 1


def test_memory_is_bounded_and_frames_come_again(tmp_path: Path) -> None:
    side = 1024
    large = np.zeros((20, 1, side, side), np.float32)
    large[:, 0, 0, 0] = np.arange(20)
    np.save(tmp_path / "large.npy", large)
    inputs = opened(network_of((1, 1, side, side)), tmp_path, "large.npy", frames=40)
    assert [int(inputs[i]["x"][0, 0, 0, 0]) for i in range(40)] == [*range(20)] * 2
    assert sum(a.nbytes for frame in inputs._kept.values() for a in frame.values()) <= KEPT_BYTES


@pytest.mark.parametrize(
    ("shape", "files", "settings", "sentence"),
    [
        ((2, 3, 4, 6), "red.png", {}, "takes 2 images at once; set model.input_shape to"),
        ((1, 2, 4, 6), "red.png", {}, "is not an image of 1, 3 or 4 channels; use .npy files"),
        ((1, 10), "red.png", {"layout": "nchw"}, "is not an image of 1, 3 or 4 channels"),
        ((1, 9, 6, 3), "red.png", {"layout": "nchw"}, "layout nchw does not suit"),
        ((1, 3, 4, 6), "red.png", {"mean": (0.5, 0.5)}, "mean has 2 numbers, but the model's"),
        ((1, 3, 4, 6), "red.png", {"std": 0.0}, "std must not contain 0"),
        ((1, 3, 4, 6), "*.gif", {}, "no file matches"),
        (
            (1, 3, 4, 6),
            "notes.txt",
            {},
            "is not a kind of file that can be read; use .png",
        ),
        ((1, 3, 4, 6), "half.png", {}, "half.png: cannot be read as an image: "),
        ((1, 3, 4, 6), "text.jpg", {}, "text.jpg: cannot be read as an image: "),
        ((1, 3, 4, 6), "text.npy", {}, "text.npy: cannot be read as a NumPy file: "),
        ((1, 3, 4, 6), "text.npz", {}, "text.npz: cannot be read as a NumPy file: "),
        ((1, 3, 4, 6), "objects.npy", {}, "cannot be read as a NumPy file: it holds Python obj"),
        (
            (1, 3, 4, 6),
            "two.npy",
            {},
            "has the shape [2], but the model's input 'x' needs [1, 3, 4",
        ),
        ((1, 3, 4, 6), "none.npy", {}, "has the shape [0, 3, 4, 6], but the model's input 'x'"),
        ((1, 3, 4, 6), "two.npz", {}, "has no array 'x', which is an input of the model; add"),
    ],
)
def test_what_cannot_be_used_is_named_before_anything_starts(
    red: Path, shape: tuple[int, ...], files: str, settings: dict[str, object], sentence: str
) -> None:
    (red / "half.png").write_bytes((red / "red.png").read_bytes()[:40])
    for name in ("notes.txt", "text.jpg", "text.npy", "text.npz"):
        (red / name).write_text("some text")
    np.save(red / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(red / "two.npy", np.zeros(2, np.float32))
    np.save(red / "none.npy", np.zeros((0, 3, 4, 6), np.float32))
    np.savez(red / "two.npz", y=np.zeros(2))
    with pytest.raises(BadInputError) as caught:
        opened(network_of(shape), red, files, **settings).check()
    assert sentence in str(caught.value)


def test_floating_point_numbers_are_not_cut_to_whole_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    with pytest.raises(BadInputError, match=r"x\.npy: holds float64, but .* 'x' is uint8"):
        opened(network_of((1, 2), dtype="uint8"), tmp_path, "x.npy")


def test_one_image_is_not_enough_for_two_inputs(red: Path) -> None:
    with pytest.raises(BadInputError, match=r"but the model has 2 inputs \(x0, x1\); use \.npz"):
        opened(network_of((1, 3, 4, 6), inputs=2), red, "red.png")
    np.save(red / "x.npy", np.zeros((1, 3, 4, 6), np.float32))
    with pytest.raises(BadInputError, match=r"x\.npy: the model has 2 inputs \(x0, x1\); use an"):
        opened(network_of((1, 3, 4, 6), inputs=2), red, "x.npy")


def test_an_archives_arrays_hold_as_many_frames_each(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", x0=np.zeros((3, 2), "f4"), x1=np.ones((4, 2), "f4"))
    with pytest.raises(BadInputError, match=r"different numbers of frames \(x0: 3, x1: 4\)"):
        opened(network_of((1, 2), inputs=2), tmp_path, "both.npz")
