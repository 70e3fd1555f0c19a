"""The client of the documents against the server of the documents."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.docs import markdown
from tests.serve.server import ROOT, Serving, expected

pytest.importorskip("aiohttp", reason="needs the extra serve")

EXAMPLE = ROOT / "examples" / "http_client.py"


def test_the_page_shows_the_example() -> None:
    (shown,) = markdown.blocks(ROOT / "docs" / "serving.md", "python")
    assert EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[2].strip() == shown.strip()


@pytest.mark.slow
def test_the_example_prints_the_digit() -> None:
    serving = Serving()
    program = EXAMPLE.read_text(encoding="utf-8").replace("127.0.0.1:8000", serving.http)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) == np.argmax(expected()[0])
    assert serving.end() == 0
