"""Shows the runs of a server as Prometheus' metrics, at `GET /metrics`.

Every scrape takes a view of each run; nothing is counted here. Labels are models, versions, nodes
and channels of the present plans, so neither the length of a run nor the number of requests adds
time series. The names follow Prometheus' conventions: base units, `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import (
    CollectorRegistry,
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder

from launcher.core.run_state import RunState
from launcher.serve.statistics import OUTCOMES
from launcher.serve.tensors import ServedModel
from launcher.view.model import LatencyView, NodeState, NodeView, RunView

METRICS_PATH = "/metrics"

_RUN = ["model", "version"]
_NODE = [*_RUN, "node"]
_CHANNEL = [*_RUN, "channel", "producer", "consumer"]

Counted = tuple[str, str, Callable[[NodeView], float | None]]
"""A metric of nodes: its name, its help, and its value, which is left out where it is None."""

_NODE_COUNTERS: Sequence[Counted] = (
    ("busy_seconds", "Time for which the node computed.", lambda n: n.busy_s_total),
    (
        "credit_wait_seconds",
        "Time for which the node computed nothing while a phase only lacked a credit.",
        lambda n: n.waited_s_total,
    ),
    ("sent_bytes", "Bytes of tensors that the node sent.", lambda n: n.sent_bytes_total),
    (
        "received_bytes",
        "Bytes of tensors that the node received.",
        lambda n: n.received_bytes_total,
    ),
    ("energy_joules", "Energy that the node's machine used.", lambda n: n.energy_j_total),
)
_NODE_GAUGES: Sequence[Counted] = (
    (
        "busy_ratio",
        "Share of time for which the node computed, between its last two measurements.",
        lambda n: n.busy,
    ),
    ("resident_memory_bytes", "Memory that the node's agent holds.", lambda n: n.rss_bytes),
    (
        "predicted_memory_bytes",
        "Memory that the plan predicts for the node.",
        lambda n: n.predicted_bytes,
    ),
    ("memory_limit_bytes", "Memory that the node may hold.", lambda n: n.limit_bytes),
)


class RunsCollector:
    """Collects from `views` and from the statistics of the `models` that are served."""

    def __init__(
        self,
        views: Callable[[], Sequence[RunView]],
        models: Callable[[], Sequence[ServedModel]],
        version: str,
        state_is_written: bool | None = None,
    ) -> None:
        """`state_is_written` is None where no state is to be written."""
        self._state_is_written = state_is_written
        self._views = views
        self._models = models
        self._version = version

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, as `CollectorRegistry` asks for them."""
        yield InfoMetricFamily(
            "csdf_edge_build", "Version of the server.", {"version": self._version}
        )
        if self._state_is_written is not None:
            yield GaugeMetricFamily(
                "csdf_edge_state_written",
                "0 while the service's state cannot be written, as on a full disk.",
                self._state_is_written,
            )
        by_labels = {_labels(view): view for view in self._views()}  # of equal ones the last
        yield from _of_runs(by_labels)
        yield from _of_nodes(by_labels)
        yield from _of_channels(by_labels)
        yield from _of_requests(self._models())


def exposition(collector: RunsCollector, accept: str) -> tuple[bytes, str]:
    """Return all metrics in the format that a client accepts, and its content type."""
    registry = CollectorRegistry()
    registry.register(collector)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _labels(view: RunView) -> tuple[str, ...]:
    return ",".join(view.models), ",".join(view.versions)


Views = dict[tuple[str, ...], RunView]


def _of_runs(views: Views) -> Iterator[Metric]:
    counters: Sequence[tuple[str, str, Callable[[RunView], float]]] = (
        ("frames", "Frames whose results were taken.", lambda v: v.frames_total),
        ("frames_dropped", "Frames that the source dropped.", lambda v: v.dropped_total),
        (
            "recoveries",
            "Changes of epochs: after losses and returns of nodes, and to better plans.",
            lambda v: v.recoveries_total,
        ),
    )
    gauges: Sequence[tuple[str, str, Callable[[RunView], float]]] = (
        ("frames_in_flight", "Frames that were pushed and have no result.", lambda v: v.in_flight),
        (
            "predicted_frames_per_second",
            "Rate that is predicted for the present plan.",
            lambda v: v.predicted_rate,
        ),
        ("batch_frames", "Frames that the nodes compute at once.", lambda v: v.batch),
        (
            "run_start_time_seconds",
            "When the run began, in seconds since 1970.",
            lambda v: v.started_s,
        ),
    )
    for name, text, value in counters:
        counter = CounterMetricFamily(f"csdf_edge_{name}", text, labels=_RUN)
        for labels, view in views.items():
            counter.add_metric(labels, value(view))
        yield counter
    for name, text, value in gauges:
        gauge = GaugeMetricFamily(f"csdf_edge_{name}", text, labels=_RUN)
        for labels, view in views.items():
            gauge.add_metric(labels, value(view))
        yield gauge
    states = GaugeMetricFamily(
        "csdf_edge_run_state", "1 for the state of the run.", labels=[*_RUN, "state"]
    )
    latency = HistogramMetricFamily(
        "csdf_edge_frame_latency_seconds",
        "Time from when a frame was first sent until its result was taken.",
        labels=_RUN,
    )
    for labels, view in views.items():
        for state in RunState:
            states.add_metric((*labels, state.name.lower()), state.name.lower() == view.state)
        latency.add_metric(labels, _buckets(view.latency), view.latency.sum_s)
    yield states
    yield latency


def _buckets(latency: LatencyView) -> list[tuple[str, int]]:
    return list(zip((*map(str, latency.bounds_s), "+Inf"), latency.counts, strict=True))


def _of_nodes(views: Views) -> Iterator[Metric]:
    nodes = [((*labels, node.name), node) for labels, view in views.items() for node in view.nodes]
    states = GaugeMetricFamily(
        "csdf_edge_node_state", "1 for what the node does for the run.", labels=[*_NODE, "state"]
    )
    for labels, node in nodes:
        for state in NodeState:
            states.add_metric((*labels, state.value.replace(" ", "_")), state is node.state)
    yield states
    for family, metrics in (
        (CounterMetricFamily, _NODE_COUNTERS),
        (GaugeMetricFamily, _NODE_GAUGES),
    ):
        for name, text, value_of in metrics:
            metric = family(f"csdf_edge_node_{name}", text, labels=_NODE)
            for labels, node in nodes:
                if (value := value_of(node)) is not None:
                    metric.add_metric(labels, value)
            yield metric


def _of_channels(views: Views) -> Iterator[Metric]:
    held = GaugeMetricFamily(
        "csdf_edge_channel_frames", "Frames that the channel holds.", labels=_CHANNEL
    )
    capacity = GaugeMetricFamily(
        "csdf_edge_channel_capacity_frames",
        "Frames that the channel may hold.",
        labels=_CHANNEL,
    )
    for labels, view in views.items():
        for channel in view.channels:
            ends = (*labels, channel.name, channel.producer, channel.consumer)
            held.add_metric(ends, channel.frames)
            capacity.add_metric(ends, channel.capacity)
    yield held
    yield capacity


def _of_requests(models: Sequence[ServedModel]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "csdf_edge_requests",
        "Requests for inference that were answered.",
        labels=[*_RUN, "outcome"],
    )
    durations = HistogramMetricFamily(
        "csdf_edge_request_duration_seconds",
        "Time from a request's arrival until its outputs are ready, for requests that succeeded.",
        labels=_RUN,
    )
    for model in models:
        labels, statistics = (model.name, model.version), model.statistics
        for outcome in OUTCOMES:
            requests.add_metric((*labels, outcome), statistics.outcomes[outcome])
        latencies = statistics.latencies.view()
        durations.add_metric(labels, _buckets(latencies), latencies.sum_s)
    yield requests
    yield durations
