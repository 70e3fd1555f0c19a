"""Results of requests to `launch serve` go to the sinks of `cluster.yaml` too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.serve.server import DIGITS, WAIT_S, Serving, expected, images
from tests.serve.test_connections import connected, good, post, received

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("grpc", reason="needs the extra serve")
from launcher.config.ends.sink import FrameResult
from launcher.config.load import load_cluster
from launcher.config.run import ReconnectConfig
from launcher.errors import BadInputError, FullError
from launcher.serve.served_sinks import ServedSinks, open_served_sinks
from launcher.sinks.stdout import StdoutConfig

HEAD = f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: a}}]\n"


def asked(image: np.ndarray, name: str) -> bytes:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    data = image.ravel().tolist()
    return json.dumps({"id": name, "inputs": [{**tensor, "data": data}]}).encode()


@pytest.mark.slow
def test_every_result_is_delivered_under_the_id_of_its_request(tmp_path: Path) -> None:
    target, results = tmp_path / "cluster.yaml", tmp_path / "results.jsonl"
    target.write_text(f"{HEAD}task: none\nsinks: [{{kind: json-lines, path: {results}}}]\n")
    serving = Serving(target=target)
    for number, image in enumerate(images()[:10]):
        with connected(serving) as connection:
            connection.sendall(post(asked(image, f"gate/{number}")))
            assert b'"probabilities"' in received(connection)
    assert serving.end() == 0
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["index"] for line in lines] == list(range(10))
    assert [line["name"] for line in lines] == [f"gate/{number}" for number in range(10)]
    for line, wanted in zip(lines, expected(), strict=False):
        np.testing.assert_allclose(
            line["outputs"]["probabilities"]["data"], wanted.ravel(), rtol=1e-4, atol=1e-6
        )


@pytest.mark.slow
def test_results_that_go_to_sinks_are_decoded(tmp_path: Path) -> None:
    target, results = tmp_path / "cluster.yaml", tmp_path / "results.jsonl"
    target.write_text(f"{HEAD}sinks: [{{kind: json-lines, path: {results}}}]\n")
    serving = Serving(target=target)
    with connected(serving) as connection:
        connection.sendall(post(asked(images()[0], "gate")))
        assert b'"probabilities"' in received(connection)
    assert serving.end() == 0
    (line,) = map(json.loads, results.read_text().splitlines())
    best = line["predictions"]["classes"][0]
    assert best["class"] == int(np.argmax(expected()[0]))


@pytest.mark.slow
def test_standard_output_can_be_a_sink(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    target.write_text(f"{HEAD}sinks: [{{kind: stdout}}]\n")
    serving = subprocess.Popen(
        [
            *(sys.executable, "-m", "launcher.commands.launch", "serve", str(target)),
            *("--http", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert serving.stderr is not None
    assert serving.stdout is not None
    lines = iter(serving.stderr)
    host, _, port = next(line for line in lines if "http://" in line).rpartition(":")
    del host
    with socket.create_connection(("127.0.0.1", int(port)), timeout=WAIT_S) as connection:
        connection.sendall(post(good()))
        assert b'"probabilities"' in received(connection)
    assert json.loads(serving.stdout.readline())["index"] == 0
    serving.send_signal(signal.SIGTERM)
    serving.communicate(timeout=WAIT_S)
    assert serving.returncode == 0


@pytest.mark.slow
def test_a_sink_that_can_take_nothing_more_ends_the_server_with_its_sentence(
    tmp_path: Path,
) -> None:
    target, folder = tmp_path / "cluster.yaml", tmp_path / "out"
    folder.mkdir()
    target.write_text(
        f"{HEAD}reconnect: {{tries: 1}}\n"
        f"sinks: [{{kind: json-lines, path: {folder}/results.jsonl}}]\n"
    )
    serving = Serving(target=target)
    folder.rmdir()
    folder.write_text("in the way")
    with connected(serving) as connection:
        connection.sendall(post(good()))
        received(connection)
    _, sentence = serving.process.communicate(timeout=WAIT_S)
    assert serving.process.returncode == 1
    assert "results.jsonl" in sentence


class Stuck:
    """A sink that delivers nothing until it is freed."""

    description = "stuck"
    needs_image = False

    def __init__(self) -> None:
        self.freed = threading.Event()
        self.names: list[str] = []

    def write(self, result: FrameResult) -> None:
        self.freed.wait()
        self.names.append(result.name)

    def close(self) -> None:
        pass


def test_requests_wait_for_a_sink_that_blocks_and_more_are_refused() -> None:
    stuck, keys = Stuck(), StdoutConfig(queue_results=1)
    outputs = {"probabilities": np.zeros((1, 10), "f4")}

    async def run() -> None:
        with ServedSinks([(keys, stuck)], ReconnectConfig(), 3, said.append) as sinks:
            given: list[asyncio.Task[None]] = []
            with contextlib.suppress(FullError):
                while len(given) < 10:
                    sinks.check_room()
                    given.append(asyncio.create_task(sinks.put(f"{len(given)}", outputs)))
                    await asyncio.wait(given, timeout=0)
            assert 3 <= len(given) <= 5  # three wait, one is queued, one is being written
            stuck.freed.set()
            await asyncio.wait_for(asyncio.gather(*given), WAIT_S)
            sinks.check_room()
        assert stuck.names == [f"{number}" for number in range(len(given))]

    said: list[str] = []
    asyncio.run(run())
    assert f"stuck: {len(stuck.names)} results, {len(stuck.names)} delivered" in said[0]


def test_requests_that_are_cancelled_or_cannot_be_decoded_take_no_place_for_good() -> None:
    stuck, keys = Stuck(), StdoutConfig(queue_results=1)
    outputs = {"probabilities": np.zeros((1, 10), "f4")}

    class Undecodable:
        def decode(self, outputs: object, placement: object) -> None:
            raise ValueError("no classes")

    async def run() -> None:
        with ServedSinks([(keys, stuck)], ReconnectConfig(), 3, said.append) as sinks:
            given: list[asyncio.Task[None]] = []
            with contextlib.suppress(FullError):
                while len(given) < 10:
                    sinks.check_room()
                    given.append(asyncio.create_task(sinks.put(f"{len(given)}", outputs)))
                    await asyncio.wait(given, timeout=0)
            for task in given:
                task.cancel()
            await asyncio.wait(given)
            stuck.freed.set()
            await asyncio.wait_for(sinks.put("last", outputs), WAIT_S)
            sinks.task = Undecodable()  # type: ignore[assignment]
            for _ in range(5):
                sinks.check_room()
                with pytest.raises(ValueError, match="no classes"):
                    await asyncio.wait_for(sinks.put("bad", outputs), WAIT_S)
        assert stuck.names == [*(f"{number}" for number in range(len(given))), "last"]

    said: list[str] = []
    asyncio.run(run())


def test_sinks_that_need_images_are_refused_by_their_place(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    target.write_text(f"{HEAD}sinks:\n  - {{kind: stdout}}\n  - {{kind: images, path: out}}\n")
    with pytest.raises(BadInputError, match=r"line 5, sinks\[1\]: needs images"):
        open_served_sinks(load_cluster(target), 8, lambda _: None)


def test_of_several_networks_each_sink_gets_the_results_of_its_own(tmp_path: Path) -> None:
    target = tmp_path / "cluster.yaml"
    digits = DIGITS / "digits.onnx"
    models = f"model: [{{path: {digits}, name: gate}}, {{path: {digits}, name: yard}}]\n"
    sinks = "sinks:\n  - {kind: stdout, network: yard}\n"
    target.write_text(f"{models}nodes: [{{name: a}}]\n{sinks}")
    assert list(open_served_sinks(load_cluster(target), 8, lambda _: None)) == ["yard"]
    target.write_text(f"{models}nodes: [{{name: a}}]\nsinks: [{{kind: stdout}}]\n")
    with pytest.raises(BadInputError, match="several networks are served"):
        open_served_sinks(load_cluster(target), 8, lambda _: None)
    target.write_text(f"{models}nodes: [{{name: a}}]\n{sinks.replace('yard', 'yrad')}")
    with pytest.raises(BadInputError, match=r"no network 'yrad'.*'yard'"):
        load_cluster(target)


def test_a_server_can_do_without_a_sink_that_fails() -> None:
    class Failing:
        description, needs_image = "the test's sink", False

        def write(self, _: FrameResult) -> None:
            raise OSError("gone")

        def close(self) -> None:
            pass

    said: list[str] = []
    failed = threading.Event()

    def told(text: str) -> None:
        said.append(text)
        failed.set()

    async def run() -> None:
        keys = StdoutConfig(queue_results=1)
        with ServedSinks([(keys, Failing())], ReconnectConfig(), 3, lambda _: None) as sinks:
            sinks.do_without(told)
            await asyncio.wait_for(sinks.put("first", {}), WAIT_S)
            assert await asyncio.to_thread(failed.wait, WAIT_S)
            for _ in range(3):
                await asyncio.wait_for(sinks.put("later", {}), WAIT_S)

    asyncio.run(run())
    assert said == ["the test's sink: OSError: gone; this sink gets no more results of requests"]
