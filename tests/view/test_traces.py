"""Traces of requests, as an OTLP receiver gets them: from the server to the boards and back."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import tritonclient.grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.serve.server import WAIT_S, Serving, images

pytestmark = pytest.mark.slow

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Receiver:
    """A server that takes what exporters send, and has the spans of each trace."""

    def __init__(self) -> None:
        self._spans: dict[str, list[Span]] = {}
        self._changed = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                receiver.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        with self._changed:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self._spans.setdefault(span.trace_id.hex(), []).append(span)
            self._changed.notify_all()

    def trace(self, trace: str) -> dict[str, Span]:
        """The spans of a trace by name, once the server's own is there."""

        def is_there() -> bool:
            return any(span.name.startswith("infer") for span in self._spans.get(trace, ()))

        with self._changed:
            assert self._changed.wait_for(is_there, WAIT_S)
            return {span.name: span for span in self._spans[trace]}

    @property
    def traces(self) -> set[str]:
        return set(self._spans)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def serving(receiver: Receiver) -> Iterator[Serving]:
    serving = Serving("--traces", receiver.url)
    yield serving
    assert serving.end() == 0


def ask(serving: Serving, headers: dict[str, str]) -> None:
    tensor = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8]}
    body = json.dumps({"inputs": [{**tensor, "data": images()[0].ravel().tolist()}]}).encode()
    url = f"http://{serving.http}/v2/models/digits/infer"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=WAIT_S):
        pass


def attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


def clock_error_ns(span: Span) -> int:
    """By how much the span's times may be wrong: clocks are compared by round trips."""
    values = {each.key: each.value.double_value for each in span.attributes}
    return int(1e9 * values.get("csdf_edge.clock_error_s", 0.0)) + 1000


def check(spans: dict[str, Span]) -> None:
    """One server span, and within it: queue, a firing on each board in order, and the result."""
    server = spans.pop("infer digits")
    assert server.parent_span_id.hex() == CALLER
    assert server.kind == Span.SPAN_KIND_SERVER
    assert all(span.parent_span_id == server.span_id for span in spans.values())
    named = {attributes(span).get("csdf_edge.node"): span for span in spans.values()}
    boards = {node: named[node] for node in ("left", "middle", "right")}
    ordered = [spans["queue"], *boards.values(), spans["result"]]
    assert len(ordered) == len(spans)
    at_ns = server.start_time_unix_nano
    for span in ordered:
        assert span.start_time_unix_nano + clock_error_ns(span) >= at_ns
        at_ns = span.end_time_unix_nano - clock_error_ns(span)
    assert at_ns <= server.end_time_unix_nano + max(map(clock_error_ns, boards.values()))


def test_a_request_over_http_is_one_trace_from_the_server_to_each_board_and_back(
    serving: Serving, receiver: Receiver
) -> None:
    ask(serving, {"traceparent": f"00-{TRACE}-{CALLER}-01"})
    check(receiver.trace(TRACE))


def test_so_is_a_request_over_grpc(serving: Serving, receiver: Receiver) -> None:
    trace = TRACE[::-1]
    given = tritonclient.grpc.InferInput("image", [1, 1, 8, 8], "FP32")
    given.set_data_from_numpy(images()[0].astype(np.float32).reshape(1, 1, 8, 8))
    with tritonclient.grpc.InferenceServerClient(serving.grpc) as client:
        client.infer("digits", [given], headers={"traceparent": f"00-{trace}-{CALLER}-01"})
    check(receiver.trace(trace))


def test_what_its_caller_does_not_sample_is_not_traced(
    serving: Serving, receiver: Receiver
) -> None:
    unsampled, sampled = "1" * 32, "2" * 32
    ask(serving, {})
    ask(serving, {"traceparent": "nonsense"})
    ask(serving, {"traceparent": f"00-{unsampled}-{CALLER}-00"})
    ask(serving, {"traceparent": f"00-{sampled}-{CALLER}-01"})
    check(receiver.trace(sampled))
    assert unsampled not in receiver.traces
    assert receiver.traces <= {TRACE, TRACE[::-1], sampled}
