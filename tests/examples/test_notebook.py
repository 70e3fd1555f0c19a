"""The notebook runs from its first cell to its last, in a kernel of Jupyter."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.examples.gallery import ALLOWED, difference

nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")
nbformat = pytest.importorskip("nbformat", reason="needs the extra dev")
pytest.importorskip("ipykernel", reason="needs the extra dev")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "notebook"


@pytest.mark.slow
def test_each_cell_runs_and_shows_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(FOLDER / "predict.ipynb", as_version=4)
    assert not [cell.outputs for cell in notebook.cells if cell.get("outputs")]
    resources = {"metadata": {"path": str(FOLDER)}}
    nbclient.NotebookClient(notebook, timeout=100, resources=resources).execute()
    opening, shown, values, share = [cell.outputs for cell in notebook.cells if cell.get("outputs")]

    # Opening shows one output, which is updated in place, and nothing on standard error.
    (progress,) = opening
    page = progress.data["text/html"]
    assert page.startswith("<details><summary>")
    assert "planned (sequential)" in page
    assert "images are cropped" not in page  # the task is given
    assert "<" not in progress.data["text/plain"]

    picture = Image.open(io.BytesIO(base64.b64decode(shown[0].data["image/jpeg"])))
    assert picture.size == (320, 320)
    assert difference(FOLDER / "predicted.jpg", picture) < ALLOWED
    assert re.match(r"<ImagePrediction 320×320: classify class \d", shown[0].data["text/plain"])
    assert values[0].data["text/plain"].startswith("(array([")
    right = re.match(r"(\d+)% of 100 digits are right", share[0].text)
    assert right is not None
    assert int(right[1]) >= 90
