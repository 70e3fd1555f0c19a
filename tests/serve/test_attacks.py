"""Requests and connections by which one client could harm the others of a server."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import select
import socket
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import csdf_edge
from csdf_edge import LiveCluster
from tests.serve.server import DIGITS, Serving, expected, images
from tests.serve.test_connections import ask_whole, connected, good, post, received
from tests.serve.test_limits import answer, connect, http, service

grpc = pytest.importorskip("grpc", reason="needs the extra serve")
brotli = pytest.importorskip("brotli", reason="needs brotli")
pytest.importorskip("tritonclient.http", reason="needs tritonclient[grpc,http]")
from benchmarks.serving.attackers import DATA, SETTINGS, Http2, Target, frame  # noqa: E402
from launcher.serve.over_grpc.messages import METHODS  # noqa: E402
from launcher.serve.over_grpc.server import STRANGERS_S, _address, grpc_server  # noqa: E402
from launcher.serve.service import ClientLimits  # noqa: E402

pytestmark = pytest.mark.slow

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
MB = 1_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("attacks") / "log"


@pytest.fixture(scope="module")
def serving(log: Path) -> Iterator[Serving]:
    """A server as a login starts it, with 1024 descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    with log.open("wb") as file:
        try:
            serving = Serving(log=file)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield serving
        assert serving.end() == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LiveCluster]:
    with csdf_edge.open(DIGITS / "cluster.yaml", strategy="sequential") as cluster:
        yield cluster


def ask(serving: Serving, request: bytes) -> tuple[int, bytes]:
    """The status of the answer to a request that ends its connection, and the whole answer."""
    with connected(serving) as connection:
        connection.sendall(request)
        answer = received(connection)
    return int(answer.split(b" ", 2)[1]), answer


def peak_bytes(serving: Serving) -> int:
    status = Path(f"/proc/{serving.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


# ---------------------------------------------------------------- bodies that are compressed


@cache
def bomb(encoding: str, size: int = 500 * MB) -> bytes:
    if encoding == "br":
        return brotli.compress(bytes(size), quality=5)
    made = zlib.compressobj(9, wbits={"gzip": 31, "deflate": 15}[encoding])
    return b"".join([made.compress(bytes(MB)) for _ in range(size // MB)] + [made.flush()])


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("path", ["/anything", "/v2/health/live", "/v2/models/digits/infer"])
def test_nobody_has_a_body_inflated_without_bound(
    serving: Serving, encoding: str, path: str
) -> None:
    before = peak_bytes(serving)
    status, _ = ask(serving, post(bomb(encoding), f"Content-Encoding: {encoding}", path=path))
    assert status in (400, 404, 405, 413, 415)
    assert peak_bytes(serving) - before < 10 * MB
    assert ask_whole(serving)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_bodies_that_tritons_clients_compress_are_inflated(
    serving: Serving, algorithm: str
) -> None:
    module = pytest.importorskip("tritonclient.http")
    given = module.InferInput("image", [1, 1, 8, 8], "FP32")
    given.set_data_from_numpy(images()[0])
    with module.InferenceServerClient(serving.http) as client:
        found = client.infer("digits", [given], request_compression_algorithm=algorithm)
    np.testing.assert_allclose(found.as_numpy("probabilities"), expected()[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(good()), "GZip", 200),
        (good(), "identity", 200),
        (brotli.compress(good()), "br", 415),
        (good(), "zstd", 415),
        (good(), "gzip, gzip", 415),
        (b"{}", "gzip", 400),
        (gzip.compress(good())[:-9], "gzip", 400),
        (gzip.compress(good()) + b"more", "gzip", 400),
        (gzip.compress(good()) + bytes(60_000), "deflate", 400),
        (b"", "gzip", 400),
    ],
)
def test_a_body_is_what_its_encoding_says_or_refused(
    serving: Serving, log: Path, body: bytes, encoding: str, status: int
) -> None:
    before = log.stat().st_size
    found, said = ask(serving, post(body, f"Content-Encoding: {encoding}"))
    assert found == status, said
    assert log.stat().st_size == before


def test_a_message_of_grpc_is_not_inflated_without_bound(serving: Serving) -> None:
    before = peak_bytes(serving)
    with grpc.insecure_channel(serving.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        with pytest.raises(grpc.RpcError) as raised:
            call(bytes(50 * MB), compression=grpc.Compression.Gzip)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert peak_bytes(serving) - before < 10 * MB


# ---------------------------------------------------------------- counts and types


def test_texts_in_place_of_numbers_are_refused_before_they_are_made_an_array(
    serving: Serving,
) -> None:
    before = peak_bytes(serving)
    one = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    for data in (["x" * 30_000, *[""] * 63], ["x" * 30_000, *[""] * 9000], [["x"] * 9] * 900):
        status, said = ask(serving, post(json.dumps({"inputs": [{**one, "data": data}]}).encode()))
        assert status == 400, said
    assert peak_bytes(serving) - before < 5 * MB


# ---------------------------------------------------------------- unfinished, idle, slow


def test_bodies_that_never_end_share_a_bounded_room(cluster: LiveCluster) -> None:
    async def run() -> None:
        async with http(cluster, ClientLimits(read_s=3.0, room_bytes=200_000)) as (_, port):
            slow = [await connect(port, post(b" " * 60_000)[:-1]) for _ in range(30)]
            for _ in range(5):
                assert b"probabilities" in await answer(await connect(port, post(good())))
            said = await asyncio.gather(*map(answer, slow))
            given_up = [one[9:12] for one in said]
            assert set(given_up) <= {b"429", b"408"}
            assert given_up.count(b"429") >= 20

    asyncio.run(run())


def test_who_does_not_read_its_answer_gives_way_to_others(cluster: LiveCluster) -> None:
    """An answer has the request's id, each letter of which takes more bytes than in the request."""
    given = json.loads(good()) | {"id": "\N{PILE OF POO}" * 15_000}
    request = post(json.dumps(given, ensure_ascii=False).encode())

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with http(cluster, ClientLimits(read_s=60.0, room_bytes=200_000)) as (_, port):
            with ExitStack() as stack:
                closed, sending = select.poll(), []
                for _ in range(8):
                    one = stack.enter_context(socket.socket())
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    one.connect(("127.0.0.1", port))
                    one.setblocking(False)
                    many = request.replace(b"Connection: close\r\n", b"") * 100
                    sending.append(asyncio.create_task(loop.sock_sendall(one, many)))
                    closed.register(one, 0)
                while len(closed.poll(0)) < 5:
                    assert len(await answer(await connect(port, request))) > 12 * 15_000
                for task in sending:
                    task.cancel()
                await asyncio.gather(*sending, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_messages_that_never_end_share_a_bounded_room(cluster: LiveCluster) -> None:
    async def run() -> None:
        limits = ClientLimits(room_bytes=200_000)
        async with grpc_server(
            service(cluster, limits), "127.0.0.1", 0, tls=None, most=200
        ) as port:
            target = Target("", f"127.0.0.1:{port}", "t", "digits", 0, 0)
            with ExitStack() as stack:
                for _ in range(100):
                    one = await asyncio.to_thread(Http2, target)
                    stack.enter_context(one.socket)
                    one.call(1, "ModelInfer")
                    one.write(1, b"\0" + struct.pack(">I", 60_000) + bytes(1000))
                message = METHODS["ModelInfer"][0](model_name="digits")
                one = message.inputs.add(name="image", datatype="FP32", shape=[1, 1, 8, 8])
                one.contents.fp32_contents.extend(images()[0].ravel().tolist())
                channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
                for _ in range(5):
                    call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                    assert await call(message.SerializeToString(), timeout=20)
                await channel.close()

    asyncio.run(run())


def test_a_connection_of_grpc_that_only_answers_pings_is_closed(cluster: LiveCluster) -> None:
    async def run() -> None:
        limits = ClientLimits(read_s=0.5)
        async with grpc_server(service(cluster, limits), "127.0.0.1", 0, tls=None, most=4) as port:
            target = Target("", f"127.0.0.1:{port}", "t", "digits", 0, 0)
            one = await asyncio.to_thread(Http2, target)
            with one.socket:
                while one.is_open:
                    await asyncio.to_thread(one.read)

    asyncio.run(asyncio.wait_for(run(), 20))


def taking_nothing(target: Target, method: str, calls: int, sent: bytes) -> Http2:
    """A connection without a window for answers, with so many calls."""
    one = Http2(target)
    one.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    for number in range(calls):
        stream = 1 + 2 * number
        one.call(stream, method)
        one.write(stream, b"\0" + struct.pack(">I", len(sent)) + sent)
    return one


@pytest.mark.parametrize("method", ["ServerLive", "ModelInfer", "ModelStreamInfer"])
def test_who_takes_no_answers_keeps_no_calls(
    cluster: LiveCluster, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel takes all that is sent, and HTTP/2 has no room for it."""

    async def run() -> None:
        limits = ClientLimits(read_s=1.0)
        most = 8
        async with grpc_server(
            service(cluster, limits), "127.0.0.1", 0, tls=None, most=most
        ) as port:
            target = Target("", f"127.0.0.1:{port}", "t", "digits", 0, 0)
            message = METHODS["ModelInfer"][0](model_name="digits")
            one = message.inputs.add(name="image", datatype="FP32", shape=[1, 1, 8, 8])
            one.contents.fp32_contents.extend(images()[0].ravel().tolist())
            sent = message.SerializeToString()
            one = await asyncio.to_thread(taking_nothing, target, method, most, sent)
            with one.socket:
                while one.is_open:
                    await asyncio.to_thread(one.read)
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                assert await call(sent, timeout=20, wait_for_ready=True)

    asyncio.run(asyncio.wait_for(run(), 20))
    assert not caplog.records


@pytest.mark.parametrize("method", ["ServerLive", "ModelInfer", "Another"])
def test_who_takes_its_answers_keeps_its_connection(cluster: LiveCluster, method: str) -> None:
    def ask(port: int) -> None:
        one = Http2(Target("", f"127.0.0.1:{port}", "t", "digits", 0, 0))
        with one.socket:
            one.call(1, method)
            one.send(frame(DATA, 1, 1, b""))
            while 1 in one._windows:
                one.read()
            one.socket.settimeout(3 * STRANGERS_S)
            with suppress(TimeoutError):
                while one.is_open:
                    one.read()
            assert one.is_open

    async def run() -> None:
        kept = service(cluster, ClientLimits())
        kept.token = "a-token-of-some-length"
        async with grpc_server(kept, "127.0.0.1", 0, tls=None, most=8) as port:
            await asyncio.to_thread(ask, port)

    asyncio.run(asyncio.wait_for(run(), 20))


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:80", ("10.0.0.1", 80)),
        ("ipv6:%5B::1%5D:50211", ("::1", 50211)),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", ("fe80::1", 1)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:80", ("10.0.0.1", 80)),
    ],
)
def test_the_address_of_a_peer_is_read(peer: str, address: tuple[str, int]) -> None:
    assert _address(peer) == address


def test_two_thousand_idle_connections_leave_the_server_to_others(
    serving: Serving, log: Path
) -> None:
    before = log.stat().st_size
    with ExitStack() as stack:
        for _ in range(991):
            for address in (serving.http, serving.grpc):
                host, _, port = address.rpartition(":")
                stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        for _ in range(3):
            assert ask_whole(serving)
    assert log.stat().st_size == before


@pytest.mark.parametrize(
    "sent",
    [
        LIVE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        LIVE + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\nabc",
        LIVE + b"Content-Length: 10\r\nContent-Encoding: gzip\r\n\r\nab",
        LIVE + b"Content-Length: -1\r\n\r\n",
        LIVE + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n\xff\xff",
        LIVE + b"X: " + b"a" * 70_000 + b"\r\n\r\n",
        LIVE + b"X: a\r\n" * 300 + b"\r\n",
        LIVE + b"Sec-WebSocket-Key1: a\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:b:c HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01" + bytes(200),
        frame(4, 0, 0, b""),
    ],
)
def test_nothing_that_a_stranger_sends_is_logged(serving: Serving, log: Path, sent: bytes) -> None:
    before = log.stat().st_size
    with connected(serving) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received(connection)
    assert ask_whole(serving)
    assert log.stat().st_size == before


# ---------------------------------------------------------------- DNS rebinding


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("192.168.1.4", 200),
        ("pi-kitchen.local:8000", 200),
        ("board", 200),
        ("evil.example", 403),
        ("evil.example:8000", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example.", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/v2", "/metrics", "/csdf-edge/v1/view"])
def test_without_a_token_a_page_that_calls_this_machine_by_its_own_name_is_refused(
    serving: Serving, host: str, status: int, path: str
) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert ask(serving, request.encode())[0] == status
