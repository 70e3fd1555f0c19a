"""The kind webhook, against a web server that answers well, badly, slowly or not at all."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from csdf_edge.testing.sink_contract import SinkContract, made_result
from launcher.config.ends.sink import ResultRefusedError, SinkConfig, SinkLostError
from launcher.sinks.webhook import MOST_ANSWER_BYTES, WebhookConfig, WebhookSink
from tests.sinks.web_server import Answer, Handler, WebServer, accept, hang_up, raw, status

TOKEN = "the-secret-token"


@pytest.fixture
def server() -> Iterator[WebServer]:
    started = WebServer()
    yield started
    started.end()


@pytest.fixture
def sink(server: WebServer, tmp_path: Path) -> Iterator[WebhookSink]:
    opened = WebhookConfig(url=f"{server.url}/hook?a=b", timeout_s=0.5).open(tmp_path)
    yield opened
    opened.close()


class TestWebhook(SinkContract):
    password = TOKEN

    @pytest.fixture(autouse=True)
    def _server(self, server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        monkeypatch.setenv("HOOK_TOKEN", TOKEN)

    def config(self, place: Path) -> SinkConfig:
        return WebhookConfig(url=self.server.url, token_env="HOOK_TOKEN")

    def delivered(self, place: Path) -> list[int]:
        return [posted["index"] for posted in self.server.posted]

    @contextmanager
    def outage(self, place: Path) -> Iterator[None]:
        self.server.answer = hang_up
        yield
        self.server.answer = accept


def test_a_result_is_one_json_object_with_the_token(
    server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", TOKEN)
    monkeypatch.setenv("KEY", "k")
    config = WebhookConfig(
        url=server.url, token_env="TOKEN", headers={"X-Site": "7"}, headers_env={"X-Key": "KEY"}
    )
    sink = config.open(tmp_path)
    for index in range(3):
        sink.write(made_result(index))
    assert [posted["index"] for posted in server.posted] == [0, 1, 2]
    sent = {name: server.headers[name] for name in ("Authorization", "X-Site", "X-Key")}
    assert sent == {"Authorization": f"Bearer {TOKEN}", "X-Site": "7", "X-Key": "k"}
    assert server.headers["Content-Type"] == "application/json"
    assert server.connections == 1
    sink.close()


@pytest.mark.parametrize("code", [408, 425, 429, 500, 502, 503])
def test_a_server_in_trouble_is_asked_again(
    server: WebServer, sink: WebhookSink, code: int
) -> None:
    server.answer = status(code)
    with pytest.raises(SinkLostError, match=f"the server answers {code}"):
        sink.write(made_result(0))
    server.answer = accept
    sink.write(made_result(0))
    assert len(server.posted) == 1


@pytest.mark.parametrize("code", [400, 401, 404, 413, 422])
def test_a_result_that_the_server_refuses_is_left_out(
    server: WebServer, sink: WebhookSink, code: int
) -> None:
    server.answer = status(code)
    with pytest.raises(ResultRefusedError, match=f"the server answers {code} to frame 0"):
        sink.write(made_result(0))
    server.answer = accept
    sink.write(made_result(1))
    assert [posted["index"] for posted in server.posted] == [1]


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_no_redirect_is_followed(server: WebServer, sink: WebhookSink, code: int) -> None:
    other = WebServer()
    server.answer = status(code, Location=other.url)
    with pytest.raises(ResultRefusedError, match="a redirect, which is not followed"):
        sink.write(made_result(0))
    assert other.connections == 0
    other.end()


def test_a_server_that_names_a_time_is_left_alone_until_then(
    server: WebServer, sink: WebhookSink
) -> None:
    server.answer = status(503, Retry_After="600")
    with pytest.raises(SinkLostError, match="answers 503"):
        sink.write(made_result(0))
    server.answer = accept
    with pytest.raises(SinkLostError, match="no request within the next 300 s"):
        sink.write(made_result(0))
    assert server.posted == []


@pytest.mark.parametrize("after", ["Wed, 21 Oct 2065 07:28:00 GMT", "-5", "1e9", "soon", "0"])
def test_a_time_that_is_no_number_of_seconds_is_no_wait(
    server: WebServer, sink: WebhookSink, after: str
) -> None:
    server.answer = status(429, Retry_After=after)
    with pytest.raises(SinkLostError):
        sink.write(made_result(0))
    server.answer = accept
    sink.write(made_result(0))


def test_a_server_that_is_gone_and_comes_back_is_connected_to_again(tmp_path: Path) -> None:
    server = WebServer()
    port = server.server_address[1]
    sink = WebhookConfig(url=server.url).open(tmp_path)
    sink.write(made_result(0))
    server.answer = hang_up
    with pytest.raises(SinkLostError):
        sink.write(made_result(1))
    server.end()
    with pytest.raises(SinkLostError, match="refused"):
        sink.write(made_result(1))
    again = WebServer(port)
    sink.write(made_result(1))
    assert [posted["index"] for posted in again.posted] == [1]
    sink.close()
    again.end()


def dripping(stop: threading.Event, first: bytes, drop: bytes = b"x") -> Answer:
    """An answer that never ends, a drop at a time."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        handler.wfile.write(first)
        while not stop.wait(0.02):
            handler.wfile.write(drop)

    return answer


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 2", b"HTTP/1.1 100 Continue\r\nX: "])
def test_a_slow_answer_ends_in_time(server: WebServer, sink: WebhookSink, first: bytes) -> None:
    stop = threading.Event()
    server.answer = dripping(stop, first)
    with pytest.raises(SinkLostError):
        sink.write(made_result(0))
    stop.set()


def test_a_slow_or_endless_body_after_a_good_status_is_a_delivered_result(
    server: WebServer, sink: WebhookSink
) -> None:
    stop = threading.Event()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    for answer in (
        dripping(stop, head),
        dripping(stop, head, drop=bytes(MOST_ANSWER_BYTES)),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nshort"),
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
    ):
        server.answer = answer
        sink.write(made_result(0))
    stop.set()
    server.answer = accept
    sink.write(made_result(1))
    assert len(server.posted) == 1


def test_garbage_for_an_answer_costs_nothing_but_the_attempt(
    server: WebServer, sink: WebhookSink
) -> None:
    drawn = random.Random(1)
    good = b"HTTP/1.1 204 No Content\r\nRetry-After: 1\r\nLocation: http://x/\r\n\r\n"
    for _ in range(300):
        answer = bytearray(good)
        for _ in range(drawn.randrange(1, 8)):
            at = drawn.randrange(len(answer))
            answer[at : at + drawn.randrange(3)] = drawn.randbytes(drawn.randrange(4))
        server.answer = raw(bytes(answer))
        sink._not_before_s = 0
        with suppress(SinkLostError, ResultRefusedError):
            sink.write(made_result(0))
    for answer in (b"", b"\0" * 100_000, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000):
        server.answer = raw(answer)
        with pytest.raises(SinkLostError):
            sink.write(made_result(0))
    server.answer = accept
    sink._not_before_s = 0
    sink.write(made_result(1))
    assert server.posted[-1]["index"] == 1


def test_the_path_of_the_url_is_in_no_message(server: WebServer, sink: WebhookSink) -> None:
    server.answer = hang_up
    with pytest.raises(SinkLostError) as caught:
        sink.write(made_result(0))
    assert "hook?" not in str(caught.value) + sink.description
    assert json.dumps(server.url)[1:-1] in sink.description
