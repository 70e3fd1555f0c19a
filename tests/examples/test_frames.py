"""The drawn frames: small, varied, and what their script draws."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

FRAMES = Path(__file__).parents[2] / "examples" / "frames"
PICTURES = sorted(path for path in FRAMES.iterdir() if path.suffix in {".png", ".jpg"})


@pytest.fixture(scope="module")
def draw() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw", FRAMES / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_draws_every_picture_in_the_folder_and_no_other(draw: ModuleType) -> None:
    assert sorted(draw.SCENES) == [path.name for path in PICTURES]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_what_the_script_draws(draw: ModuleType, path: Path) -> None:
    drawn = draw.SCENES[path.name]()
    with Image.open(path) as stored:
        assert stored.size == drawn.size
        assert stored.mode == drawn.mode
        difference = np.abs(np.asarray(stored, np.float64) - np.asarray(drawn, np.float64))
    # Room for JPEG's losses and for another Pillow's rounding; another scene differs by tens.
    assert difference.mean() < 4


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_not_square(path: Path) -> None:
    assert path.stat().st_size <= 60_000
    with Image.open(path) as picture:
        assert picture.width != picture.height


def test_the_pictures_are_of_every_kind_that_a_user_may_bring() -> None:
    kinds = set()
    for path in PICTURES:
        with Image.open(path) as picture:
            kinds.add((path.suffix, picture.mode))
    assert kinds >= {
        (".jpg", "RGB"),
        (".jpg", "L"),
        (".png", "RGB"),
        (".png", "L"),
        (".png", "RGBA"),
    }
