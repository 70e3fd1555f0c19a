"""Exports one trace per request by OpenTelemetry: server, queue, the firing of each board, result.

Only a request that comes with a sampled `traceparent` (W3C Trace Context) is traced, as a part of
its caller's trace. Its spans are made once it is answered and the agents have said when they
computed its frame; the SDK's own thread sends them by OTLP over HTTP.

This module imports OpenTelemetry (the extra `trace`) only if traces are wanted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from launcher.clock import now_s
from launcher.config.redaction import server_of
from launcher.errors import BadInputError
from launcher.logs import log
from launcher.serve.tensors import ServedModel
from launcher.view.frame_trace import MOST_FOLLOWED, FrameTrace

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

FLUSH_MS = 5_000
"""How long spans that are not sent yet may take when the server ends."""

SAID_EVERY_S = 60.0
"""The least time between two messages that the receiver takes no spans."""


@dataclass
class RequestTrace:
    """A request that is traced, from its arrival on; `frame` follows its frame through the run."""

    model: ServedModel
    transport: str
    context: Context
    began_s: float
    ended_s: float = 0.0
    outcome: str = ""
    frame: FrameTrace = field(default_factory=FrameTrace)


class _NotTaken(logging.Handler):
    """Replaces OpenTelemetry's messages, which have the receiver's whole URL and are frequent."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._sentence = (
            f"traces: {server_of(endpoint)} does not accept spans, so they are lost; check "
            "that it runs"
        )
        self._silent_until_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        """Log the message in our own words."""
        if (now_s := time.monotonic()) >= self._silent_until_s:
            self._silent_until_s = now_s + SAID_EVERY_S
            log.warning(self._sentence)


class RequestTraces:
    """Makes the spans of requests, and sends them to `endpoint`, an OTLP receiver's URL."""

    def __init__(self, endpoint: str, release: str) -> None:
        """Raises `BadInputError` if OpenTelemetry is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError as error:
            raise BadInputError(
                f"traces: {error.name} is missing on this machine; install csdf-edge[trace]"
            ) from error
        resource = Resource.create({"service.name": "csdf-edge", "service.version": release})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", timeout=FLUSH_MS / 1000)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer: Tracer = self._provider.get_tracer("csdf_edge", release)
        self._lock = threading.Lock()
        self._under_way = 0

    def close(self) -> None:
        """Send what is left."""
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()

    def begin(
        self, headers: Mapping[str, str], model: ServedModel, transport: str, began_s: float
    ) -> RequestTrace | None:
        """Return the trace of a request with these headers that arrived at `began_s`, on the
        monotonic clock; None if its caller does not sample it, or if too many are traced."""
        if "traceparent" not in headers:
            return None
        from opentelemetry.trace import get_current_span  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        context = TraceContextTextMapPropagator().extract(headers)
        caller = get_current_span(context).get_span_context()
        if not caller.is_valid or not caller.trace_flags.sampled:
            return None
        with self._lock:
            if self._under_way >= MOST_FOLLOWED:
                return None
            self._under_way += 1
        return RequestTrace(model, transport, context, began_s)

    def end(self, request: RequestTrace, outcome: str) -> None:
        """Note that the request is answered; its spans are made once its frame is complete, or now
        if it has no result.
        """
        request.ended_s, request.outcome = time.monotonic(), outcome
        if outcome == "success":
            request.frame.complete.add_done_callback(lambda _: self._export(request))
        else:
            self._export(request)

    def _export(self, request: RequestTrace) -> None:
        with self._lock:
            self._under_way -= 1
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415
        from opentelemetry.trace.propagation import set_span_in_context  # noqa: PLC0415

        clock = WallClock()
        model, frame = request.model, request.frame
        server: Span = self._tracer.start_span(
            f"infer {model.name}",
            request.context,
            SpanKind.SERVER,
            {
                "csdf_edge.model": model.name,
                "csdf_edge.version": model.version,
                "csdf_edge.transport": request.transport,
                "csdf_edge.outcome": request.outcome,
                "csdf_edge.frame": frame.frame,
            },
            start_time=clock.ns(request.began_s),
        )
        within = set_span_in_context(server)

        def span(name: str, began_s: float, ended_s: float, **attributes: Any) -> None:
            made = self._tracer.start_span(
                name, within, attributes=attributes, start_time=clock.ns(began_s)
            )
            made.end(clock.ns(max(began_s, ended_s)))

        if frame.sent_s:
            span("queue", frame.pushed_s, frame.sent_s)
        for firing in frame.firings:
            node, phase = firing.node, firing.phase
            attributes = {
                "csdf_edge.node": node,
                "csdf_edge.phase": phase,
                "csdf_edge.clock_error_s": firing.clock_error_s,
            }
            span(f"{node}: {phase}", firing.began_s, firing.ended_s, **attributes)
        if frame.taken_s:
            computed_s = max((f.ended_s for f in frame.firings), default=frame.taken_s)
            span("result", computed_s, frame.taken_s)
        if request.outcome != "success":
            server.set_status(Status(StatusCode.ERROR, request.outcome))
        server.end(clock.ns(request.ended_s))


@contextmanager
def traces_to(endpoint: str | None) -> Iterator[RequestTraces | None]:
    """Yield the tracer of requests, if there is an endpoint; send remaining spans at the end."""
    if endpoint is None:
        yield None
        return
    traces = RequestTraces(endpoint, version("csdf-edge"))
    theirs, ours = logging.getLogger("opentelemetry"), _NotTaken(endpoint)
    theirs.addHandler(ours)
    theirs.propagate = False
    try:
        yield traces
    finally:
        traces.close()
        theirs.removeHandler(ours)
        theirs.propagate = True


class WallClock:
    """Converts times of the monotonic clock to nanoseconds since 1970, all by one comparison."""

    def __init__(self) -> None:
        self._ahead_s = now_s() - time.monotonic()

    def ns(self, at_s: float) -> int:
        """Return a time in nanoseconds since 1970."""
        return int((at_s + self._ahead_s) * 1e9)
