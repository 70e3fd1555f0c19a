"""`launch serve` and clients that do what no good client does; and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from io import StringIO
from pathlib import Path

import pytest

from tests.serve.server import DIGITS, WAIT_S, Serving, images

pytest.importorskip("aiohttp", reason="needs the extra serve")
pytest.importorskip("grpc", reason="needs the extra serve")
from launcher.commands.launch import main
from launcher.errors import BadInputError
from launcher.progress import LineDisplay
from launcher.run.request import Request
from launcher.serve.serving import serve
from tests.launcher.launches import ended

pytestmark = pytest.mark.slow

PATH = "/v2/models/digits/infer"


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    serving = Serving("--cors-origins", "http://page.example")
    yield serving
    assert serving.end() == 0


def connected(serving: Serving) -> socket.socket:
    host, _, port = serving.http.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def received(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def ask(serving: Serving, request: bytes) -> tuple[int, bytes]:
    """The status and the rest of the answer to bytes after which nothing follows."""
    with connected(serving) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = received(connection)
    return (int(answer.split(b" ", 2)[1]) if answer else 0), answer


def post(body: bytes, *headers: str, length: int | None = None, path: str = PATH) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def good() -> bytes:
    one = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    return json.dumps({"inputs": [{**one, "data": images()[0].ravel().tolist()}]}).encode()


def ask_whole(serving: Serving) -> bool:
    """Whether a good request is answered while other connections are open."""
    with connected(serving) as connection:
        connection.sendall(post(good()))
        return b'"probabilities"' in received(connection)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", (), 400),
        (b"{", (), 400),
        (b"\xff\xfe", (), 400),
        (b"[" * 300_000, (), 413),
        (b"[" * 60_000, (), 400),
        (b'{"inputs": []}', (), 400),
        (b'{"inputs": [{"name": 3}]}', (), 400),
        (b"{}", ("Inference-Header-Content-Length: 900",), 400),
        (b"{}", ("Inference-Header-Content-Length: -1",), 400),
        (b"{}", ("Content-Encoding: gzip",), 400),
        (bytes(1_000_000), (), 413),
    ],
)
def test_a_bad_body_is_refused_and_the_next_client_is_answered(
    serving: Serving, body: bytes, headers: tuple[str, ...], status: int
) -> None:
    with connected(serving) as connection:
        connection.sendall(post(body[:200_000], *headers, length=len(body)))
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == status, answer.read()
    assert ask_whole(serving)


def test_a_body_in_chunks_without_end_is_cut_off(serving: Serving) -> None:
    head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with connected(serving) as connection:
        connection.sendall(head)
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        with pytest.raises((ConnectionError, AssertionError)):  # noqa: PT012
            for _ in range(1000):
                connection.sendall(chunk)
            raise AssertionError
    assert ask_whole(serving)


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(serving: Serving) -> None:
    request = post(good(), "Expect: 100-continue")
    head, body = request[: -len(good())], good()
    with connected(serving) as connection:
        connection.sendall(head)
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert b'"probabilities"' in received(connection)


def test_what_is_no_http_is_refused(serving: Serving) -> None:
    for nonsense in (
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"A" * 70_000,
        b"PRI * HTTP/2.0\r\n\r\n",
    ):
        status, _ = ask(serving, nonsense)
        assert status in (0, 400)
    assert ask_whole(serving)


def test_a_truncated_body_and_clients_that_send_nothing_hold_up_nobody(serving: Serving) -> None:
    idle = [connected(serving) for _ in range(50)]
    for connection in idle[:25]:
        connection.sendall(post(good())[:-10])
    assert ask_whole(serving)
    for connection in idle:
        connection.close()
    assert ask_whole(serving)


def test_a_page_of_another_origin_may_not_use_it(serving: Serving) -> None:
    with connected(serving) as connection:
        connection.sendall(post(good(), "Origin: http://evil.example"))
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 403 ")
    with connected(serving) as connection:
        preflight = post(b"", "Origin: http://page.example").replace(b"POST", b"OPTIONS", 1)
        connection.sendall(preflight)
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 204 ")
    assert b"Access-Control-Allow-Origin: http://page.example\r\n" in answer


def test_paths_and_methods_that_are_not_served(serving: Serving) -> None:
    for request, status in (
        (post(b"", path="/v2/models/digits"), 405),
        (post(b"", path="/v2/models/digits/versions/2/infer"), 404),
        (post(b"", path="/v2/models/cats/infer"), 404),
        (post(b"", path="/"), 404),
    ):
        with connected(serving) as connection:
            connection.sendall(request)
            assert received(connection).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_signal_ends_it_and_leaves_no_agent(number: signal.Signals, code: int) -> None:
    """As SIGTERM does, which ends every other server of these tests."""
    assert Serving().end(number) == code


def test_requests_under_way_are_answered_before_it_ends() -> None:
    serving = Serving()
    agents = serving.agents()
    for agent in agents:
        os.kill(agent, signal.SIGSTOP)
    with connected(serving) as connection, connected(serving) as other:
        connection.sendall(post(good()))
        other.sendall(post(b"", path="/v2").replace(b"POST", b"GET", 1))
        received(other)  # the server has read what came before
        serving.process.send_signal(signal.SIGTERM)
        for agent in agents:
            os.kill(agent, signal.SIGCONT)
        assert b'"probabilities"' in received(connection)
    serving.process.communicate(timeout=WAIT_S)
    assert serving.process.returncode == 0


def refused(capsys: pytest.CaptureFixture[str], target: Path, *options: str) -> list[str]:
    """The lines that `launch serve` prints to standard error before it ends with exit code 2."""
    code, _, said = ended(main, capsys, "serve", target, *options)
    assert code == 2
    return said.splitlines()


def test_an_address_that_is_taken_is_one_sentence(
    serving: Serving, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(
        f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: a}}]\nstrategy: sequential\n"
    )
    for option, address in (("--http", serving.http), ("--grpc", serving.grpc)):
        said = refused(capsys, config, option, address)
        assert f"{address}: cannot listen on this address" in said[-1]
        assert len(said) == 1  # before anything is planned and deployed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--http", "0.0.0.0:0"), "can be reached from other machines; give a token"),
        (("--http", "nowhere"), "--http: 'nowhere' is not an address; write HOST:PORT"),
        (("--http", "off", "--grpc", "off"), "http and grpc are both off"),
        (("--tls-key", "key.pem"), "belong together"),
        (("--token", "short"), "--token: "),
        (("--tls-key", "a.pem", "--tls-certificate", "b.pem"), "not a certificate with its key"),
    ],
)
def test_what_cannot_be_served_is_one_sentence(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], sentence: str
) -> None:
    (said,) = refused(capsys, DIGITS / "cluster.yaml", *options)
    assert sentence in said


def test_state_and_an_order_that_binds_networks_together_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    nodes = "nodes: [{name: a}]\nstrategy: sequential\n"
    model = DIGITS / "digits.onnx"
    two = f"model: [{{path: {model}, name: a}}, {{path: {model}, name: b"
    for text, sentence in (
        (f"{two}}}]\nrun: {{order: strict}}\n", "need frames of all networks at the same rate"),
        (f"{two}, state: {{image: probabilities}}}}]\n", "keeps state"),
        (f"model: {{path: {model}, state: {{image: probabilities}}}}\n", "keeps state"),
        (f"model: {{path: {model}, version: 0}}\n", "version"),
    ):
        config.write_text(text + nodes)
        with pytest.raises(BadInputError, match=sentence):
            serve(Request(config), {}, LineDisplay(StringIO()))


def test_it_ends_with_a_sentence_once_the_cluster_can_compute_no_more(tmp_path: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: a}}]\nrecovery: false\n")
    serving = Serving(target=config)
    assert ask_whole(serving)
    (agent,) = serving.agents()
    os.kill(agent, signal.SIGKILL)
    _, sentence = serving.process.communicate(timeout=WAIT_S)
    assert serving.process.returncode == 1
    assert "'a'" in sentence.splitlines()[-1]
