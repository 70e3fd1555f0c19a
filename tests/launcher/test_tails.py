"""A detector that selects its boxes runs over three agents: whatever it finds in a frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import yaml

from launcher.commands.launch import main
from launcher.commands.partition import main as partition
from launcher.plan.profile.file import read_profile
from tests.cnn.models import save
from tests.cnn.tails import detector, detector_frames
from tests.launcher.launches import done, ended
from tests.launcher_runtime.clusters import daemons

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_searches")]

Nodes = list[dict[str, Any]]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with daemons(("a", "b", "c"), tmp_path_factory.mktemp("agents")) as addresses:
        # So slow that two devices are worth their messages.
        yield [
            {"name": name, "address": address, "macs_per_s": "1M", "accelerator": True}
            for name, (address, _) in addresses.items()
        ]


def laid_out(folder: Path, nodes: Nodes, **config: Any) -> Path:
    """A cluster of three frames: nothing, little and much is found in them."""
    save(detector(), folder, "net.onnx")
    np.save(folder / "frames.npy", np.stack([frame["x"] for frame in detector_frames()]))
    cluster = folder / "cluster.yaml"
    data = {"model": "net.onnx", "nodes": nodes, "input": "frames.npy", **config}
    cluster.write_text(yaml.safe_dump(data))
    return cluster


def wanted(folder: Path) -> list[dict[str, np.ndarray]]:
    session = ort.InferenceSession(str(folder / "net.onnx"))
    names = [output.name for output in session.get_outputs()]
    frames = np.load(folder / "frames.npy")
    return [dict(zip(names, session.run(None, {"x": x}), strict=True)) for x in frames]


@pytest.mark.parametrize(
    "strategy", ["auto", "vertical", "sequential", "hybrid", "horizontal", "batch-split"]
)
def test_frames_in_which_nothing_little_and_much_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: Nodes, strategy: str
) -> None:
    cluster = laid_out(tmp_path, nodes, strategy=strategy, frames=7)
    report = done(main, capsys, str(cluster), "--output", str(tmp_path / "out"))
    assert report["frames"] == 7
    assert report["max_relative_error"] <= 1e-4
    expected = wanted(tmp_path)
    assert len({array.shape for result in expected for array in result.values()}) == 6
    for frame in range(7):
        for name, array in expected[frame % 3].items():
            found = np.load(tmp_path / "out" / f"{frame:06d}.{name}.npy")
            np.testing.assert_allclose(found, array, rtol=1e-4, atol=1e-5)


def test_a_journal_keeps_results_of_any_shape_and_a_run_continues_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: Nodes
) -> None:
    cluster = laid_out(tmp_path, nodes, strategy="vertical", journal="kept")
    done(main, capsys, str(cluster))
    (tmp_path / "kept" / "chosen.frames" / "000001.npy").unlink()
    report = done(main, capsys, str(cluster), "--resume")
    assert (report["journal"]["resumed"], report["journal"]["damaged"]) == (2, 1)
    assert report["max_relative_error"] <= 1e-4
    for frame, result in enumerate(wanted(tmp_path)):
        found = np.load(tmp_path / "kept" / "chosen.frames" / f"{frame:06d}.npy")
        np.testing.assert_array_equal(found, result["chosen"])


def test_a_profile_measures_the_tail_like_any_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nodes: Nodes
) -> None:
    cluster = laid_out(tmp_path, nodes, strategy="vertical")
    found = tmp_path / "profile.json"
    code, _, err = ended(partition, capsys, "profile", "--cluster", cluster, "--output", found)
    assert code == 0, err
    for measured in read_profile(found).nodes.values():
        assert measured.measured.layer_s["tail"] > 0
