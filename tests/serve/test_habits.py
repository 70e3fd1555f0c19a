"""What clients of Triton and KServe are used to, and what tools of gRPC and HTTP expect."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.serve.server import DIGITS, WAIT_S, Serving, expected, images

grpc = pytest.importorskip("grpc", reason="needs the extra serve")
grpcclient = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")
httpclient = pytest.importorskip("tritonclient.http", reason="needs tritonclient[grpc,http]")
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase,
)
from tritonclient.utils import InferenceServerException  # noqa: E402

from launcher.serve.over_grpc.messages import METHODS, SERVICE, STREAM  # noqa: E402

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("module", [httpclient, grpcclient])
STATUS = health_pb2.HealthCheckResponse


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    assert serving.end() == 0


def client(serving: Serving, module: ModuleType, **options: Any) -> Any:
    address = serving.http if module is httpclient else serving.grpc
    return module.InferenceServerClient(address, **options)


def given(module: ModuleType, array: np.ndarray) -> list[Any]:
    one = module.InferInput("image", list(array.shape), "FP32")
    one.set_data_from_numpy(array)
    return [one]


def request(
    serving: Serving, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(serving.http, timeout=WAIT_S)
    try:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body or None, names)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


@BOTH
def test_several_frames_in_one_request_are_answered_together(
    serving: Serving, module: ModuleType
) -> None:
    with client(serving, module) as one:
        answer = one.infer("digits", given(module, np.concatenate(images()[:20])), request_id="b")
    found = answer.as_numpy("probabilities")
    assert found.shape == (20, 10)
    np.testing.assert_allclose(found, np.concatenate(expected()[:20]), rtol=1e-4, atol=1e-6)


@BOTH
def test_too_many_frames_are_refused_by_their_number(serving: Serving, module: ModuleType) -> None:
    frames = given(module, np.concatenate(images()[:65]))
    with (
        client(serving, module) as one,
        pytest.raises(InferenceServerException, match="'image' has 65 frames"),
    ):
        one.infer("digits", frames)


@BOTH
def test_classes_instead_of_scores(serving: Serving, module: ModuleType) -> None:
    wanted = module.InferRequestedOutput("probabilities", class_count=3)
    for count in (1, 2):
        with client(serving, module) as one:
            frames = np.concatenate(images()[:count])
            answer = one.infer("digits", given(module, frames), outputs=[wanted])
        found = answer.as_numpy("probabilities").reshape(count, 3)
        for row, scores in zip(found, expected(), strict=False):
            best = np.argsort(-scores[0], kind="stable")[:3]
            parts = [text.decode().split(":") for text in row.tolist()]
            assert [int(part[1]) for part in parts] == best.tolist()
            np.testing.assert_allclose([float(p[0]) for p in parts], scores[0][best], atol=1e-4)
    assert answer.as_numpy("probabilities").shape == (2, 3)


def test_the_raw_request_of_triton(serving: Serving) -> None:
    for count in (1, 3):
        body = np.concatenate(images()[:count]).tobytes()
        status, headers, content = request(
            serving, "POST", "/v2/models/digits/infer", body, Inference_Header_Content_Length="0"
        )
        assert status == 200, content
        length = int(headers["Inference-Header-Content-Length"])
        (output,) = json.loads(content[:length])["outputs"]
        assert output["shape"] == [count, 10]
        found = np.frombuffer(content[length:], np.float32).reshape(count, 10)
        np.testing.assert_allclose(found, np.concatenate(expected()[:count]), rtol=1e-4, atol=1e-6)


def test_null_is_left_out(serving: Serving) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "parameters": None}
    tensor |= {"data": images()[0].ravel().tolist()}
    wanted = {"name": "probabilities", "parameters": {"binary_data": None, "classification": None}}
    for outputs in (None, [wanted]):
        body = {"id": None, "parameters": None, "inputs": [tensor], "outputs": outputs}
        status, _, content = request(
            serving, "POST", "/v2/models/digits/infer/", json.dumps(body).encode()
        )
        assert status == 200, content
        np.testing.assert_allclose(
            json.loads(content)["outputs"][0]["data"], expected()[0][0], rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    "path",
    [
        "/v2/health/live",
        "/v2/health/ready",
        "/v2",
        "/v2/models/digits",
        "/metrics",
        "/",
        "/predict",
    ],
)
def test_head_is_get_without_its_body_and_paths_may_end_with_a_slash(
    serving: Serving, path: str
) -> None:
    got, headed = request(serving, "GET", path), request(serving, "HEAD", path)
    assert (headed[0], headed[2]) == (200, b"")
    assert headed[1]["Content-Type" if got[2] else "Date"]
    if path != "/metrics":
        assert headed[1].get("Content-Length", "0") == str(len(got[2]))
        assert request(serving, "GET", path.rstrip("/") + "/")[2] == got[2]


@BOTH
def test_what_is_not_offered_is_refused_by_its_name(serving: Serving, module: ModuleType) -> None:
    with client(serving, module) as one:
        for ask, sentence in (
            (one.get_log_settings, "log settings are not served"),
            (one.get_trace_settings, "trace settings are not served"),
            (lambda: one.get_trace_settings("digits"), "trace settings are not served"),
            (one.get_system_shared_memory_status, "shared memory is not served"),
            (one.get_cuda_shared_memory_status, "shared memory is not served"),
            (
                lambda: one.register_system_shared_memory("region", "/region", 256),
                "shared memory is not served",
            ),
            (lambda: one.load_model("digits"), "`launch up` changes what is served"),
        ):
            with pytest.raises(InferenceServerException, match=sentence) as raised:
                ask()
            wanted = ("501", "StatusCode.UNIMPLEMENTED")[module is grpcclient]
            assert raised.value.status() == wanted


@BOTH
def test_tensors_in_shared_memory_are_refused_by_name(serving: Serving, module: ModuleType) -> None:
    one = module.InferInput("image", [1, 1, 8, 8], "FP32")
    one.set_shared_memory("region", 256)
    wanted = module.InferRequestedOutput("probabilities")
    wanted.set_shared_memory("region", 40)
    with client(serving, module) as asking:
        with pytest.raises(InferenceServerException, match="'image' is in shared memory"):
            asking.infer("digits", [one])
        with pytest.raises(InferenceServerException, match="'probabilities' is wanted in shared"):
            asking.infer("digits", given(module, images()[0]), outputs=[wanted])


def test_a_probe_of_grpc_finds_the_server_healthy() -> None:
    serving = Serving("--token", "a-token-of-thirty-characters-ok")
    with grpc.insecure_channel(serving.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            asked = health_pb2.HealthCheckRequest(service=service)
            assert health.Check(asked, timeout=WAIT_S).status == STATUS.SERVING
        with pytest.raises(grpc.RpcError) as raised:
            health.Check(health_pb2.HealthCheckRequest(service="cats"), timeout=WAIT_S)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        unknown = health.Watch(health_pb2.HealthCheckRequest(service="cats"))
        assert next(unknown).status == STATUS.SERVICE_UNKNOWN
        watched = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status == STATUS.SERVING
        with pytest.raises(grpc.RpcError) as raised:
            ProtoReflectionDescriptorDatabase(channel).get_services()
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert serving.end() == 0
        with pytest.raises(grpc.RpcError) as raised:
            next(watched)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_tools_find_the_methods_by_reflection(serving: Serving) -> None:
    with grpc.insecure_channel(serving.grpc) as channel:
        found = ProtoReflectionDescriptorDatabase(channel)
        assert {SERVICE, "grpc.health.v1.Health"} <= set(found.get_services())
        file = found.FindFileContainingSymbol(SERVICE)
        (service,) = file.service
        assert {method.name for method in service.method} == {*METHODS, STREAM}
        v1 = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
        listing = b"\x3a\x00"  # list_services, empty
        assert SERVICE.encode() in next(v1(iter([listing]), timeout=WAIT_S))


def test_pings_keep_a_quiet_stream_alive(serving: Serving) -> None:
    options = [
        ("grpc.keepalive_time_ms", 300),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    message = METHODS["ModelInfer"][0](
        model_name="digits", inputs=[tensor], raw_input_contents=[images()[0].tobytes()]
    ).SerializeToString()

    async def run() -> None:
        async with grpc.aio.insecure_channel(serving.grpc, options=options) as channel:
            call = channel.stream_stream(f"/{SERVICE}/{STREAM}")()
            await call.write(message)
            assert await asyncio.wait_for(call.read(), WAIT_S) is not grpc.aio.EOF
            quiet = asyncio.ensure_future(call.read())
            done, _ = await asyncio.wait((quiet,), timeout=4)  # about 13 pings; 3 were too many
            assert not done, call
            await call.write(message)
            assert await asyncio.wait_for(quiet, WAIT_S) is not grpc.aio.EOF
            await call.done_writing()

    asyncio.run(run())


def test_frames_of_several_clients_are_computed_in_one_batch(tmp_path: Path) -> None:
    """A batch that never gets its fourth frame would wait for an hour."""
    (tmp_path / "cluster.yaml").write_text(
        f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: a}}, {{name: b}}]\n"
        "strategy: sequential\nbatch: 4\nrun: {batch_wait_s: 3600}\n"
    )
    serving = Serving(target=tmp_path / "cluster.yaml")

    def ask(number: int) -> np.ndarray:
        module = (httpclient, grpcclient)[number % 2]
        with client(serving, module) as one:
            answer = one.infer("digits", given(module, images()[number]))
        return np.asarray(answer.as_numpy("probabilities"))

    with ThreadPoolExecutor(4) as clients:
        found = list(clients.map(ask, range(8), timeout=WAIT_S))
    np.testing.assert_allclose(found, expected()[:8], rtol=1e-4, atol=1e-6)
    with client(serving, httpclient) as one:
        answer = one.infer("digits", given(httpclient, np.concatenate(images()[:4])))
    together = np.concatenate(expected()[:4])
    np.testing.assert_allclose(answer.as_numpy("probabilities"), together, rtol=1e-4, atol=1e-6)
    assert serving.end() == 0
