"""`launch serve` as Triton's own Python clients see it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks.serving.clients import Asked
from tests.serve.server import WAIT_S, Serving, ask_all, expected, images

grpcclient = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")
httpclient = pytest.importorskip("tritonclient.http", reason="needs tritonclient[grpc,http]")
import tritonclient.grpc.aio  # noqa: E402
import tritonclient.http.aio  # noqa: E402
from tritonclient.utils import InferenceServerException  # noqa: E402

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("kind", ["http", "grpc"])
MODULES = {"http": httpclient, "grpc": grpcclient}
ASYNC = {"http": tritonclient.http.aio, "grpc": tritonclient.grpc.aio}


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    assert serving.end() == 0


def client(serving: Serving, kind: str, **options: Any) -> Any:
    return MODULES[kind].InferenceServerClient(getattr(serving, kind), **options)


def frame(module: ModuleType, image: np.ndarray, datatype: str = "FP32", **options: Any) -> Any:
    given = module.InferInput("image", list(image.shape), datatype)
    given.set_data_from_numpy(image, **options)
    return given


def refused(kind: str, error: InferenceServerException, status: int, code: str) -> str:
    wanted = str(status) if kind == "http" else f"StatusCode.{code}"
    assert error.status() == wanted
    return str(error.message())


@BOTH
def test_a_client_finds_the_server_and_the_model(serving: Serving, kind: str) -> None:
    with client(serving, kind) as one:
        assert one.is_server_live()
        assert one.is_server_ready()
        assert one.is_model_ready("digits")
        assert one.is_model_ready("digits", "1")
        if kind == "http":
            assert not one.is_model_ready("cats")
        else:
            with pytest.raises(InferenceServerException, match="there is no model"):
                one.is_model_ready("cats")
        options = {} if kind == "http" else {"as_json": True}
        assert "binary_tensor_data" in one.get_server_metadata(**options)["extensions"]
        found = one.get_model_metadata("digits", **options)
        assert found["versions"] == ["1"]
        assert [(i["name"], i["datatype"]) for i in found["inputs"]] == [("image", "FP32")]
        assert [int(n) for n in found["inputs"][0]["shape"]] == [1, 1, 8, 8]
        assert [output["name"] for output in found["outputs"]] == ["probabilities"]
        index = one.get_model_repository_index(**options)
        assert (index if kind == "http" else index["models"])[0]["state"] == "READY"
        config = one.get_model_config("digits", **options)
        config = config if kind == "http" else config["config"]
        assert config["input"][0]["data_type"] == "TYPE_FP32"


@BOTH
def test_answers_are_those_of_onnx_runtime_and_are_counted(serving: Serving, kind: str) -> None:
    module = MODULES[kind]
    with client(serving, kind) as one:
        options = {} if kind == "http" else {"as_json": True}

        def count() -> int:
            (counted,) = one.get_inference_statistics("digits", **options)["model_stats"]
            return int(counted["inference_stats"]["success"].get("count", 0))

        before = count()
        for image, wanted in zip(images()[:20], expected()[:20], strict=True):
            answer = one.infer("digits", [frame(module, image)], request_id="17")
            np.testing.assert_allclose(answer.as_numpy("probabilities"), wanted, rtol=1e-4)
        assert count() == before + 20
        head = answer.get_response(**options)
        assert (head["id"], head["model_version"]) == ("17", "1")


@pytest.mark.parametrize("binary_input", [True, False])
@pytest.mark.parametrize("binary_output", [True, False])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_http_takes_and_gives_json_and_bytes(
    serving: Serving, binary_input: bool, binary_output: bool, compression: str | None
) -> None:
    given = frame(httpclient, images()[3], binary_data=binary_input)
    wanted = httpclient.InferRequestedOutput("probabilities", binary_data=binary_output)
    with client(serving, "http") as one:
        answer = one.infer(
            "digits", [given], outputs=[wanted], request_compression_algorithm=compression
        )
    np.testing.assert_allclose(answer.as_numpy("probabilities"), expected()[3], rtol=1e-4)


@BOTH
def test_what_does_not_fit_is_refused_by_name(serving: Serving, kind: str) -> None:
    module, image = MODULES[kind], images()[0]
    with client(serving, kind) as one:

        def sentence(given: Any, model: str = "digits", **options: Any) -> str:
            with pytest.raises(InferenceServerException) as raised:
                one.infer(model, [given], **options)
            found = (404, "NOT_FOUND") if model != "digits" else (400, "INVALID_ARGUMENT")
            return refused(kind, raised.value, *found)

        assert "'image' has the shape [1, 8, 8]" in sentence(frame(module, image[0]))
        double = frame(module, image.astype("f8"), "FP64")
        assert "'image' is 'FP64'; the model takes FP32" in sentence(double)
        other = module.InferInput("picture", [1, 1, 8, 8], "FP32")
        other.set_data_from_numpy(image)
        assert "no input 'picture'; its inputs are image" in sentence(other)
        good = frame(module, image)
        output = module.InferRequestedOutput("classes")
        assert "no output 'classes'" in sentence(good, outputs=[output])
        assert "no model 'cats'" in sentence(good, model="cats")
        assert one.infer("digits", [good]) is not None


def ask(serving: Serving, kind: str, clients: int, each: int) -> Coroutine[Any, Any, Asked]:
    """So many clients at once, each with other frames in another order."""
    given = [{"image": image} for image in images()]
    wanted = [{"probabilities": array} for array in expected()]
    asking = ask_all(
        getattr(serving, kind), kind, "digits", given, wanted, clients=clients, each=each
    )
    return asyncio.wait_for(asking, WAIT_S)


@BOTH
def test_eight_clients_at_once_get_each_their_own_answers(serving: Serving, kind: str) -> None:
    asked = asyncio.run(ask(serving, kind, 8, 40))
    assert (len(asked.answers), asked.wrong, asked.refusals, asked.errors) == (320, 0, 0, {})


@BOTH
def test_no_request_is_lost_or_mixed_up_when_an_agent_is_killed(kind: str) -> None:
    serving = Serving()

    async def both() -> None:
        asking = asyncio.create_task(ask(serving, kind, 8, 60))
        async with ASYNC[kind].InferenceServerClient(getattr(serving, kind)) as one:
            for _ in range(20):  # requests are being answered
                await one.infer("digits", [frame(MODULES[kind], images()[0])])
        os.kill(serving.agents()[1], signal.SIGKILL)
        asked = await asking
        assert (len(asked.answers), asked.wrong, asked.refusals, asked.errors) == (480, 0, 0, {})

    asyncio.run(both())
    counted = client(serving, "http").get_inference_statistics("digits")["model_stats"][0]
    assert counted["inference_stats"]["success"]["count"] == 8 * 60 + 20
    assert counted["inference_stats"]["fail"]["count"] == 0
    assert serving.end() == 0


def test_more_requests_than_may_be_under_way_are_refused_at_once() -> None:
    serving = Serving("--most-in-flight", "1")
    for kind in MODULES:
        asked = asyncio.run(ask(serving, kind, 12, 10))
        assert (len(asked.answers), asked.wrong, asked.errors) == (120, 0, {})
        assert asked.refusals > 0
    assert serving.end() == 0


def test_a_token_is_needed_where_there_is_one() -> None:
    token = "a-token-of-thirty-characters-ok"
    serving = Serving("--token", token)
    for kind, module in MODULES.items():
        given = [frame(module, images()[0])]
        with client(serving, kind) as one:
            assert one.is_server_live()
            for headers in ({}, {"authorization": "Bearer another-token-of-some-size"}):
                with pytest.raises(InferenceServerException) as raised:
                    one.infer("digits", given, headers=headers)
                assert "token" in refused(kind, raised.value, 401, "UNAUTHENTICATED")
            answer = one.infer("digits", given, headers={"authorization": f"Bearer {token}"})
            np.testing.assert_allclose(answer.as_numpy("probabilities"), expected()[0], rtol=1e-4)
    assert serving.end() == 0
