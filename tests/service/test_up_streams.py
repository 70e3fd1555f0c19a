"""`launch up` with sources and sinks: each model has its own, whatever version of it serves."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.service.server import Up, images, whole, write_cluster, write_version

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("grpc", reason="needs the extra serve")

pytestmark = pytest.mark.slow

WAIT_S = 90.0


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    for version in (1, 2):
        write_version(tmp_path, version)
    for folder in ("gate", "yard"):
        (tmp_path / folder).mkdir()
    write(tmp_path, 1)
    up = Up(tmp_path, tmp_path / "cluster.yaml")
    for _ in range(3):
        up.read_until(" serves")
    yield up
    if up.process.poll() is None:
        assert up.end() == 0


def write(folder: Path, version: int) -> None:
    sources = {name: {"source": {"kind": "folder", "path": name}} for name in ("gate", "yard")}
    sinks = [
        {"kind": "json-lines", "path": f"{name}.jsonl", "network": name}
        for name in ("gate", "yard", "asked")
    ]
    models = ("gate", version), ("yard", 2), ("asked", 1)
    tasks = {"gate": {"kind": "classify", "top": 2}, "yard": "classify"}
    write_cluster(folder, *models, count=1, inputs=sources, sinks=sinks, tasks=tasks)


def put(folder: Path, first: int, last: int) -> None:
    """Put frames into a watched folder, as others do: whole files."""
    for number in range(first, last):
        draft = folder / f".{number}.npy"
        np.save(draft, images()[number])
        os.replace(draft, folder / f"{number:03d}.npy")


def delivered(up: Up, model: str, count: int) -> list[dict[str, Any]]:
    """The results in a model's file, once the service says that it has delivered as many."""
    until_s = time.monotonic() + WAIT_S
    while True:
        _, status = up.command("status")
        (stream,) = (each for each in status["streams"] if each["model"] == model)
        if stream["sinks"] and stream["sinks"][0]["delivered"] >= count:
            found = lines(up.folder / f"{model}.jsonl")
            assert len(found) == count
            return found
        assert time.monotonic() < until_s, status


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def versions(up: Up, results: list[dict[str, Any]]) -> list[int]:
    """The version of the network that has computed each result; its classes tell."""
    wanted = {v: whole(up.folder / f"digits{v}.onnx", len(results)) for v in (1, 2)}
    found = []
    for result in results:
        number = int(result["name"].removesuffix(".npy"))
        best = result["predictions"]["classes"][0]["class"]
        (version,) = (v for v, outputs in wanted.items() if outputs[number].argmax() == best)
        found.append(version)
    return found


def test_each_model_streams_its_source_to_its_sinks_through_the_version_that_serves(
    up: Up,
) -> None:
    folder = up.folder
    put(folder / "gate", 0, 10)
    put(folder / "yard", 0, 5)
    gate = delivered(up, "gate", 10)
    assert versions(up, gate) == [1] * 10
    assert {len(each["predictions"]["classes"]) for each in gate} == {2}, "what `tasks` says of it"
    assert versions(up, delivered(up, "yard", 5)) == [2] * 5
    write(folder, 2)
    code, answer = up.command("apply", str(folder / "cluster.yaml"))
    assert code == 0, answer
    put(folder / "gate", 10, 20)
    put(folder / "yard", 5, 10)
    gate = delivered(up, "gate", 20)
    assert versions(up, gate) == [1] * 10 + [2] * 10
    assert [result["index"] for result in gate] == list(range(20))
    assert versions(up, delivered(up, "yard", 10)) == [2] * 10
    code, status = up.command("status")
    assert code == 0
    streams = {stream["model"]: stream for stream in status["streams"]}
    assert {name: (each["state"], each["results"]) for name, each in streams.items()} == {
        "gate": ("streaming", 20),
        "yard": ("streaming", 10),
    }
    (sink,) = streams["gate"]["sinks"]
    assert (sink["delivered"], sink["waiting"]) == (20, 0)


def test_results_of_requests_go_to_the_sinks_of_their_model(up: Up) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    data = {"id": "7.npy", "inputs": [{**tensor, "data": images()[7].ravel().tolist()}]}
    for model in ("asked", "gate"):
        url = f"http://{up.http}/v2/models/{model}/infer"
        asked = urllib.request.Request(url, json.dumps(data).encode())
        with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
            assert answer.status == 200
    assert up.end() == 0
    (line,) = lines(up.folder / "asked.jsonl")
    assert line["name"] == "7.npy"
    assert not (up.folder / "gate.jsonl").exists(), "its sinks get its source's results"


def test_apply_says_which_sources_and_sinks_change(up: Up) -> None:
    text = (up.folder / "cluster.yaml").read_text()
    data = yaml.safe_load(text)
    del data["inputs"]["yard"]
    data["sinks"] = [{"kind": "npy", "path": "arrays", "network": "gate"}, *data["sinks"][1:]]
    (up.folder / "cluster.yaml").write_text(yaml.safe_dump(data))
    code, answer = up.command("apply", str(up.folder / "cluster.yaml"))
    assert code == 0
    assert answer["changes"] == [
        "gate: a sink (npy) is added",
        "gate: a sink (json-lines) is removed",
        "yard: its source (folder) is removed",
    ]
    code, answer = up.command("rollback")
    assert (code, answer["changes"]) == (
        0,
        [
            "gate: a sink (json-lines) is added",
            "gate: a sink (npy) is removed",
            "yard: a source (folder) is added",
        ],
    )
