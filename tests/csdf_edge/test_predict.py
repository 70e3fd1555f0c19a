"""`predict`, `predictions` and `open` from a program's own values, on real agents."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import csdf_edge
from csdf_edge import ClusterConfig, ImagePrediction, LauncherError, LiveCluster
from tests.csdf_edge.test_live import DIGITS, check, frames
from tests.launcher.models import write_branches
from tests.launcher.tasks.test_open_task import ULTRALYTICS, bright_at, write_detector

pytestmark = pytest.mark.slow

WAIT_S = 20.0


def described(model: Path, **keys: Any) -> dict[str, Any]:
    """A cluster as a program writes it, of two agents that are started."""
    nodes = [{"name": "a"}, {"name": "b"}]
    return {"model": model, "nodes": nodes, "strategy": "sequential", **keys}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    """The network that finds a box wherever the image is bright, on two agents."""
    model = write_detector(tmp_path_factory.mktemp("detector"), ULTRALYTICS)
    with csdf_edge.open(described(model), progress=False) as cluster:
        yield cluster


def jpeg(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=100, subsampling=0)
    return content.getvalue()


def test_an_image_in_any_form_becomes_boxes_in_its_pixels(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    image = bright_at(32, 16)
    Image.fromarray(image).save(tmp_path / "a.png")
    for given in (image, str(tmp_path / "a.png"), tmp_path / "a.png", Image.fromarray(image)):
        found = cluster.predict(given, timeout_s=WAIT_S)
        assert isinstance(found, ImagePrediction)
        assert found.boxes.tolist() == [[32, 16, 48, 32]]
        assert found.names == ("dog",)
    assert found.to_dict()["objects"][0]["box"] == [32, 16, 48, 32]
    from_bytes = cluster.predict(jpeg(image))
    np.testing.assert_allclose(from_bytes.boxes, [[32, 16, 48, 32]])
    assert found.plot().size == (64, 32)


def test_a_folder_is_predicted_in_order_and_a_network_may_be_named(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    for number in range(20):
        Image.fromarray(bright_at(number % 4 * 16, 16)).save(tmp_path / f"{number:02}.png")
    for model in (cluster, cluster.model("detector")):
        found = list(model.predictions(tmp_path, in_flight=3))
        assert [each.name for each in found] == [f"{number:02}.png" for number in range(20)]
        assert [each.boxes[0, 0] for each in found] == [number % 4 * 16 for number in range(20)]


def test_threads_that_predict_at_once_get_their_own_answers(cluster: LiveCluster) -> None:
    found: dict[int, float] = {}

    def ask(x: int) -> None:
        found[x] = float(cluster.predict(bright_at(x, 0)).boxes[0, 0])

    threads = [threading.Thread(target=ask, args=(x,)) for x in (0, 16, 32, 48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert found == {0: 0, 16: 16, 32: 32, 48: 48}


def test_an_array_alone_is_the_only_input(cluster: LiveCluster) -> None:
    array = np.zeros((1, 3, 16, 16), np.float32)
    array[0, 0, :4, :4] = 1
    by_name = cluster.infer({"images": array})["o"]
    np.testing.assert_array_equal(cluster.infer(array)["o"], by_name)
    np.testing.assert_array_equal(cluster.infer(array.tolist())["o"], by_name)
    np.testing.assert_array_equal(cluster.submit(array).result(WAIT_S)["o"], by_name)
    (streamed,) = cluster.stream([array])
    np.testing.assert_array_equal(streamed["o"], by_name)
    with pytest.raises(LauncherError, match=r"input 'images' is float64\[1, 3, 16, 16\]"):
        cluster.infer(array.astype(np.float64))


def test_mistakes_of_a_program_are_sentences(cluster: LiveCluster, tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match=r"missing\.png"):
        cluster.predict(tmp_path / "missing.png")
    with pytest.raises(LauncherError, match=r"an image is uint8 \[height, width, 3\], not float32"):
        cluster.predict(np.zeros((4, 4, 3), np.float32))
    with pytest.raises(LauncherError, match="at least one frame"):
        cluster.predictions(tmp_path, in_flight=0)
    with pytest.raises(LauncherError, match="has no images"):
        cluster.predictions(tmp_path)


def test_networks_that_take_no_image_or_mean_nothing_say_so(tmp_path: Path) -> None:
    branches = write_branches(tmp_path / "branches.onnx")
    (tmp_path / "b").mkdir()
    silent = write_detector(tmp_path / "b")
    models = [{"path": branches, "name": "two"}, {"path": silent, "name": "silent"}]
    with csdf_edge.open(described(models), progress=False) as cluster:  # type: ignore[arg-type]
        with pytest.raises(LauncherError, match="an image is one input, but the model has 2"):
            cluster.model("two").predict(bright_at(0, 0))
        with pytest.raises(LauncherError, match="the model does not say what its outputs mean"):
            cluster.model("silent").predict(bright_at(0, 0))
        with pytest.raises(LauncherError, match="take one of them"):
            cluster.predict(bright_at(0, 0))
        with pytest.raises(LauncherError, match="a frame is a mapping of input names to arrays"):
            cluster.model("two").infer(np.zeros((1, 3, 8, 8), np.float32))


# ---------------------------------------------------------------- open


def said_by_opening(
    capsys: pytest.CaptureFixture[str], given: Mapping[str, Any] | ClusterConfig, **options: Any
) -> str:
    with csdf_edge.open(given, **options) as cluster:
        check([cluster.infer(frames()[0], timeout_s=WAIT_S)])
    return capsys.readouterr().err


def test_a_cluster_is_opened_from_a_dict_or_a_config_and_says_what_it_assumes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = described(DIGITS / "digits.onnx")
    said = said_by_opening(capsys, given)
    assert "digits: images are cropped to 8×8, grey, 0..1; outputs are scores of classes" in said
    nodes = tuple(given["nodes"])
    config = ClusterConfig.model_validate(
        {"model": str(given["model"]), "nodes": nodes, "strategy": "sequential"}
    )
    assert said_by_opening(capsys, config, progress=False) == ""


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "the given cluster: the key 'model' is missing"),
        ({"modle": "x.onnx"}, "the given cluster, modle: unknown key; did you mean 'model'"),
        (
            {"model": "x.onnx", "nodes": [{"name": "a"}, {"name": "a"}]},
            r"the given cluster, nodes\[1\].name: 'a' is already the name of the node "
            r"nodes\[0\].name; each",
        ),
        ({"model": Path("/nowhere/x.onnx"), "nodes": [{"name": "a"}]}, "/nowhere/x.onnx"),
        (
            {"model": DIGITS / "digits.onnx", "nodes": [{"name": "a", "memory": object()}]},
            r"the given cluster, nodes\[0\].memory: ",
        ),
    ],
)
def test_a_mistake_in_a_dict_names_its_place(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(LauncherError, match=sentence):
        csdf_edge.open(given)
