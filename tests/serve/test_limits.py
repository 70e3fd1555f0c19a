"""The servers of `launch serve` in this process, with limits that a test can reach."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

import csdf_edge
from csdf_edge import LiveCluster
from tests.csdf_edge.test_live import agents_of
from tests.serve.server import DIGITS, Serving, expected, images
from tests.serve.test_connections import good, post

grpc = pytest.importorskip("grpc", reason="needs the extra serve")
pytest.importorskip("aiohttp", reason="needs the extra serve")
from launcher.serve.over_grpc.messages import METHODS, SERVICE  # noqa: E402
from launcher.serve.over_grpc.server import grpc_server  # noqa: E402
from launcher.serve.over_http.server import http_server  # noqa: E402
from launcher.serve.routes import fixed_routes  # noqa: E402
from launcher.serve.service import ClientLimits, Service  # noqa: E402

pytestmark = pytest.mark.slow

WAIT_S = 20.0
INFER = f"/{SERVICE}/ModelInfer"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with csdf_edge.open(DIGITS / "cluster.yaml", strategy="sequential") as cluster:
        yield cluster


def service(cluster: LiveCluster, limits: ClientLimits) -> Service:
    return Service(fixed_routes(cluster), limits=limits)


@asynccontextmanager
async def http(cluster: LiveCluster, limits: ClientLimits) -> AsyncIterator[tuple[Service, int]]:
    one = service(cluster, limits)
    async with http_server(one, "127.0.0.1", 0) as port:
        yield one, port


async def connect(port: int, sent: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def answer(connection: Connection) -> bytes:
    """All that comes until the server closes."""
    reader, writer = connection
    found = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    return found


@pytest.mark.parametrize(
    "sent", [b"", b"POST /v2/models/dig", b"GET /v2 HTTP/1.1\r\nHost: a\r\nX-A"]
)
def test_a_connection_on_which_no_request_arrives_is_closed(
    cluster: LiveCluster, sent: bytes
) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits(read_s=0.3)) as (_, port):
            assert await answer(await connect(port, sent)) == b""

    asyncio.run(run())


def test_a_body_that_never_ends_is_given_up(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits(read_s=0.3)) as (_, port):
            slow = await connect(port, post(good())[:-1])
            assert (await answer(slow)).startswith(b"HTTP/1.1 408 ")
            assert b"probabilities" in await answer(await connect(port, post(good())))

    asyncio.run(run())


async def busy(port: int) -> Connection:
    """A connection with a request that lacks its body, which the server waits for."""
    request = post(good(), "Expect: 100-continue")
    connection = await connect(port, request[: -len(good())])
    assert b"100 Continue" in await connection[0].readuntil(b"\r\n\r\n")
    return connection


def test_a_connection_beyond_the_limit_replaces_the_oldest_idle_one(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits(connections=2)) as (_, port):
            one = await busy(port)
            idle = await connect(port)
            newest = await connect(port, post(good()))
            assert await answer(idle) == b""
            assert b"probabilities" in await answer(newest)
            one[1].write(good())
            assert b"probabilities" in await answer(one)

    asyncio.run(run())


def test_connections_beyond_those_with_requests_are_refused(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits(connections=2)) as (_, port):
            both = [await busy(port), await busy(port)]
            assert (await answer(await connect(port))).startswith(b"HTTP/1.1 503 ")
            for one in both:
                one[1].write(good())
                assert b"probabilities" in await answer(one)

    asyncio.run(run())


def test_a_request_whose_client_has_gone_is_given_up(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits()) as (one, port):
            agents = agents_of(os.getpid())
            for agent in agents:
                os.kill(agent, signal.SIGSTOP)
            asked = [await connect(port, post(good())) for _ in range(30)]
            for _, writer in asked:
                writer.close()
                await writer.wait_closed()
            for agent in agents:
                os.kill(agent, signal.SIGCONT)
            assert b"probabilities" in await answer(await connect(port, post(good())))
            counted = one.repository.find("digits").statistics
            assert counted.outcomes.total() == 31
            assert counted.outcomes["success"] < 31

    asyncio.run(run())


def test_a_grpc_call_whose_message_never_comes_is_given_up(cluster: LiveCluster) -> None:
    async def run() -> None:
        one = service(cluster, ClientLimits(read_s=0.3))
        async with grpc_server(one, "127.0.0.1", 0, tls=None, most=4) as port:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            call = channel.stream_unary(INFER)()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await asyncio.wait_for(call, WAIT_S)
            assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await channel.close()

    asyncio.run(run())


def test_a_grpc_message_that_is_too_large_or_nonsense_is_refused(cluster: LiveCluster) -> None:
    async def run() -> None:
        one = service(cluster, ClientLimits())
        async with grpc_server(one, "127.0.0.1", 0, tls=None, most=4) as port:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            for message, code in (
                (bytes(10_000_000), grpc.StatusCode.RESOURCE_EXHAUSTED),
                (b"\xff" * 100, grpc.StatusCode.INVALID_ARGUMENT),
                (b"", grpc.StatusCode.NOT_FOUND),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await channel.unary_unary(INFER)(message)
                assert raised.value.code() is code
            live = await channel.unary_unary(f"/{SERVICE}/ServerLive")(b"")
            assert METHODS["ServerLive"][1].FromString(live).live
            await channel.close()

    asyncio.run(run())


def test_grpc_connections_have_the_same_limits(cluster: LiveCluster) -> None:
    async def run() -> None:
        one = service(cluster, ClientLimits(read_s=0.5, connections=2))
        async with grpc_server(one, "127.0.0.1", 0, tls=None, most=4) as port:
            own = [("grpc.use_local_subchannel_pool", 1)]
            channels = [
                grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=own) for _ in range(3)
            ]
            live = f"/{SERVICE}/ServerLive"
            for channel in channels[:2]:
                assert await channel.unary_unary(live)(b"", timeout=WAIT_S)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channels[2].unary_unary(live)(b"", timeout=WAIT_S)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
            for channel in channels:
                await channel.close()
        async with grpc_server(one, "127.0.0.1", 0, tls=None, most=4) as port:
            await answer(await connect(port))  # the server closes what says nothing

    asyncio.run(run())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_both_protocols_use_tls_where_there_is_a_certificate(tmp_path: Path) -> None:
    httpclient = pytest.importorskip("tritonclient.http", reason="needs tritonclient[grpc,http]")
    grpcclient = pytest.importorskip("tritonclient.grpc", reason="needs tritonclient[grpc,http]")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    serving = Serving("--tls-key", str(key), "--tls-certificate", str(certificate))
    clients = (
        httpclient.InferenceServerClient(
            serving.http, ssl=True, ssl_options={"ca_certs": str(certificate)}
        ),
        grpcclient.InferenceServerClient(
            serving.grpc, ssl=True, root_certificates=str(certificate)
        ),
    )
    for module, client in zip((httpclient, grpcclient), clients, strict=True):
        given = module.InferInput("image", [1, 1, 8, 8], "FP32")
        given.set_data_from_numpy(images()[0])
        found = client.infer("digits", [given]).as_numpy("probabilities")
        np.testing.assert_allclose(found, expected()[0], rtol=1e-4)
        client.close()
    assert serving.end() == 0
