"""Two networks on the same nodes, served as two models; asked with Triton's own clients."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime as ort
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests.launcher.models import DIGITS, write_branches
from tests.serve.server import Serving, expected, images

pytestmark = pytest.mark.slow

CLIENTS = [tritonclient.http, tritonclient.grpc]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("networks")
    write_branches(folder / "branches.onnx")
    (folder / "cluster.yaml").write_text(
        f"model: [branches.onnx, {{path: {DIGITS / 'digits.onnx'}, name: numbers, version: 7}}]\n"
        "nodes: [{name: a}, {name: b}]\nstrategy: sequential\n"
    )
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Serving]:
    serving = Serving(target=folder / "cluster.yaml")
    yield serving
    assert serving.end() == 0


def client(server: Serving, protocol: ModuleType) -> object:
    is_http = protocol is tritonclient.http
    return protocol.InferenceServerClient(server.http if is_http else server.grpc)


def ask(of: object, protocol: ModuleType, model: str, frame: dict[str, np.ndarray]) -> object:
    inputs = []
    for name, array in frame.items():
        inputs.append(protocol.InferInput(name, array.shape, "FP32"))
        inputs[-1].set_data_from_numpy(array)
    return of.infer(model, inputs)


def branch_frames(count: int) -> list[dict[str, np.ndarray]]:
    generator = np.random.default_rng(3)
    return [
        {
            "image": generator.standard_normal((1, 3, 8, 8)).astype(np.float32),
            "shift": generator.standard_normal((1, 4, 8, 8)).astype(np.float32),
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("protocol", CLIENTS)
def test_each_network_is_a_model_with_its_name_and_version(
    server: Serving, protocol: ModuleType
) -> None:
    options = {} if protocol is tritonclient.http else {"as_json": True}
    one = client(server, protocol)
    index = one.get_model_repository_index(**options)
    index = index if protocol is tritonclient.http else index["models"]
    assert [(m["name"], m["version"]) for m in index] == [("branches", "1"), ("numbers", "7")]
    assert one.is_model_ready("branches")
    assert one.is_model_ready("numbers", "7")
    numbers = one.get_model_metadata("numbers", "7", **options)
    assert numbers["versions"] == ["7"]
    assert [tensor["name"] for tensor in numbers["inputs"]] == ["image"]
    branches = one.get_model_metadata("branches", **options)
    assert [tensor["name"] for tensor in branches["inputs"]] == ["image", "shift"]
    assert one.get_model_config("branches", **options)
    for name, version in (("numbers", "1"), ("branches", "7"), ("digits", "")):
        with pytest.raises(InferenceServerException, match=r"no version|no model") as raised:
            one.get_model_metadata(name, version)
        assert raised.value.status() in ("404", "StatusCode.NOT_FOUND", None)


@pytest.mark.parametrize("protocol", CLIENTS)
def test_requests_for_both_get_their_own_results_and_are_counted_apart(
    server: Serving, folder: Path, protocol: ModuleType
) -> None:
    whole = ort.InferenceSession(folder / "branches.onnx")
    frames = branch_frames(40)

    def count(name: str) -> int:
        options = {} if protocol is tritonclient.http else {"as_json": True}
        stats = client(server, protocol).get_inference_statistics(name, **options)
        return int(stats["model_stats"][0]["inference_count"])

    before = count("branches"), count("numbers")

    def ask_numbers(_: int) -> None:
        one = client(server, protocol)
        for image, wanted in zip(images()[:40], expected(), strict=False):
            found = ask(one, protocol, "numbers", {"image": image}).as_numpy("probabilities")
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)

    def ask_branches(_: int) -> None:
        one = client(server, protocol)
        for frame in frames:
            found = ask(one, protocol, "branches", frame)
            for name, wanted in zip(("score", "aux/map"), whole.run(None, frame), strict=True):
                np.testing.assert_allclose(found.as_numpy(name), wanted, rtol=1e-4, atol=1e-5)

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(asks, n) for asks in (ask_numbers, ask_branches) for n in (0, 1)]
        for future in asking:
            future.result(60.0)
    assert count("branches") - before[0] == count("numbers") - before[1] == 80
