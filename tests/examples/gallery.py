"""What the tests of the gallery share: the script of the balls, programs that run, and pictures."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BALLS = EXAMPLES / "balls"
ALLOWED = 4.0
"""The mean difference of two pictures of the same thing, of 255: JPEG's losses, and another
library's rounding. Pictures of other balls differ by more."""


def script(path: Path) -> ModuleType:
    """The module of a script."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ran(command: Iterable[str], folder: Path) -> str:
    """What a Python program prints that is run in a folder, with a cache there."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def launched(arguments: Iterable[str], folder: Path) -> str:
    """What `launch ARGUMENTS` prints."""
    return ran(["-m", "launcher.commands.launch", *arguments], folder)


def difference(one: Path | Image.Image, other: Path | Image.Image) -> float:
    """The mean difference of two pictures' pixels, 0 to 255; infinite for other sizes."""
    pixels = []
    for picture in (one, other):
        opened = Image.open(picture) if isinstance(picture, Path) else picture
        pixels.append(np.asarray(opened.convert("RGB"), np.float64))
    if pixels[0].shape != pixels[1].shape:
        return float("inf")
    return float(np.abs(pixels[0] - pixels[1]).mean())
