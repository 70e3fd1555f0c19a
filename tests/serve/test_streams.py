"""`ModelStreamInfer` of `launch serve`: with Triton's client, and with clients that misbehave."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest

import csdf_edge
from csdf_edge import LiveCluster
from tests.csdf_edge.test_live import agents_of
from tests.serve.server import DIGITS, expected, images
from tests.serve.test_limits import INFER, WAIT_S, service

grpc = pytest.importorskip("grpc", reason="needs the extra serve")
grpcclient = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc]")
from launcher.serve.over_grpc.messages import METHODS, SERVICE  # noqa: E402
from launcher.serve.over_grpc.server import grpc_server  # noqa: E402
from launcher.serve.service import ClientLimits, Service  # noqa: E402

pytestmark = pytest.mark.slow

STREAM = f"/{SERVICE}/ModelStreamInfer"
MOST_IN_FLIGHT = 24


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with csdf_edge.open(
        DIGITS / "cluster.yaml", strategy="sequential", most_in_flight=MOST_IN_FLIGHT
    ) as cluster:
        yield cluster


@asynccontextmanager
async def served(cluster: LiveCluster, **limits: Any) -> AsyncIterator[tuple[Service, Any]]:
    """A server and a channel to it."""
    one = service(cluster, ClientLimits(**limits))
    async with (
        grpc_server(one, "127.0.0.1", 0, tls=None, most=200) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        yield one, channel


@contextmanager
def standing_still() -> Iterator[None]:
    """While this holds, the nodes compute nothing."""
    agents = agents_of(os.getpid())
    for agent in agents:
        os.kill(agent, signal.SIGSTOP)
    try:
        yield
    finally:
        for agent in agents:
            os.kill(agent, signal.SIGCONT)


def message(number: int, **changed: Any) -> bytes:
    """A request for the frame of this number."""
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    given = {"model_name": "digits", "id": str(number), "inputs": [tensor], **changed}
    contents = [images()[number].tobytes()]
    return bytes(METHODS["ModelInfer"][0](**given, raw_input_contents=contents).SerializeToString())


def response(data: bytes) -> Any:
    """The parts of a `ModelStreamInferResponse`, as Triton's client reads them."""
    return grpcclient.service_pb2.ModelStreamInferResponse.FromString(data)


def test_tritons_client_gets_each_answer_in_order_and_errors_between_them(
    cluster: LiveCluster,
) -> None:
    found: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def ask(address: str) -> list[tuple[Any, Any]]:
        with grpcclient.InferenceServerClient(address) as client:
            client.start_stream(lambda result, error: found.put((result, error)))
            for number, image in enumerate(images()[:100]):
                wrong = number % 10 == 3
                one = grpcclient.InferInput("image", [1, 1, 8, 8], "FP64" if wrong else "FP32")
                one.set_data_from_numpy(image.astype("f8") if wrong else image)
                client.async_stream_infer("digits", [one], request_id=str(number))
            answers = [found.get(timeout=WAIT_S) for _ in range(100)]
            client.stop_stream()
        return answers

    async def run() -> list[tuple[Any, Any]]:
        one = service(cluster, ClientLimits())
        async with grpc_server(one, "127.0.0.1", 0, tls=None, most=200) as port:
            return await asyncio.to_thread(ask, f"127.0.0.1:{port}")

    for number, (result, error) in enumerate(asyncio.run(run())):
        if number % 10 == 3:
            assert "'image' is 'FP64'; the model takes FP32" in str(error)
        else:
            head = result.get_response()
            assert head.id == str(number)
            assert head.parameters["triton_final_response"].bool_param
            np.testing.assert_allclose(
                result.as_numpy("probabilities"), expected()[number], rtol=1e-4, atol=1e-6
            )


def test_an_error_has_the_id_of_its_request_where_that_can_be_read(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with served(cluster) as (_, channel):
            call = channel.stream_stream(STREAM)()
            for bad, wanted_id, sentence in (
                (message(7, model_name="cats"), "7", "there is no model 'cats'"),
                (b"\xff" * 20, "", "the message is"),
            ):
                await call.write(bad)
                answer = response(await asyncio.wait_for(call.read(), WAIT_S))
                assert answer.infer_response.id == wanted_id
                assert sentence in answer.error_message
            await call.write(message(1))
            answer = response(await asyncio.wait_for(call.read(), WAIT_S))
            assert not answer.error_message
            await call.done_writing()
            assert await asyncio.wait_for(call.read(), WAIT_S) is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    asyncio.run(run())


def test_a_stream_leaves_places_to_other_clients(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with served(cluster, stream_in_flight=4) as (_, channel):
            with standing_still():
                call = channel.stream_stream(STREAM)()
                for number in range(60):
                    await call.write(message(number))
                others = [
                    asyncio.ensure_future(channel.unary_unary(INFER)(message(number)))
                    for number in range(MOST_IN_FLIGHT - 4)
                ]
            await asyncio.wait_for(asyncio.gather(*others), WAIT_S)  # none is refused
            for number in range(60):
                answer = response(await asyncio.wait_for(call.read(), WAIT_S))
                assert answer.infer_response.id == str(number), answer.error_message

    asyncio.run(run())


def test_frames_of_a_stream_whose_client_has_gone_are_given_up(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with served(cluster, stream_in_flight=MOST_IN_FLIGHT) as (one, channel):

            async def code(timeout_s: float) -> Any:
                return await channel.unary_unary(INFER)(message(0), timeout=timeout_s).code()

            with standing_still():
                call = channel.stream_stream(STREAM)()
                for number in range(MOST_IN_FLIGHT):
                    await call.write(message(number))
                while await code(0.2) is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    pass  # not all have been read
                call.cancel()
                await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"", timeout=WAIT_S)
            while await code(WAIT_S) is not grpc.StatusCode.OK:
                pass
            assert one.repository.find("digits").statistics.outcomes["success"] < MOST_IN_FLIGHT

    asyncio.run(run())


def test_streams_beyond_the_limit_are_refused_and_the_token_is_asked_for(
    cluster: LiveCluster,
) -> None:
    async def run() -> None:
        async with served(cluster, streams=1) as (one, channel):
            open_call = channel.stream_stream(STREAM)()
            await open_call.write(message(0))
            assert await asyncio.wait_for(open_call.read(), WAIT_S) is not grpc.aio.EOF
            assert await code(channel) is grpc.StatusCode.RESOURCE_EXHAUSTED
            one.token = "a-token-of-some-length"
            assert await code(channel) is grpc.StatusCode.UNAUTHENTICATED

    async def code(channel: Any) -> Any:
        call = channel.stream_stream(STREAM)()
        return await asyncio.wait_for(call.code(), WAIT_S)

    asyncio.run(run())


def test_an_open_stream_does_not_keep_the_server_from_ending(cluster: LiveCluster) -> None:
    async def run() -> None:
        assert ClientLimits().grace_s > WAIT_S
        async with served(cluster) as (_, channel):
            call = channel.stream_stream(STREAM)()
            await call.write(message(0))
            assert await asyncio.wait_for(call.read(), WAIT_S) is not grpc.aio.EOF
        assert await call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

    asyncio.run(asyncio.wait_for(run(), WAIT_S))
