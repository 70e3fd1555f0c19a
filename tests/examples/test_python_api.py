"""The example of the Python API."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_it_prints_the_digit_of_each_image_in_order() -> None:
    ran = subprocess.run(
        [sys.executable, "examples/python_api.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed = re.findall(r"^image (\d+): (\d) \(\d+%\)$", ran.stdout, re.MULTILINE)
    labels = (ROOT / "examples/digits/test_labels.txt").read_text().split()[:20]
    assert [int(number) for number, _ in printed] == list(range(20))
    assert sum(digit == label for (_, digit), label in zip(printed, labels, strict=True)) >= 19
