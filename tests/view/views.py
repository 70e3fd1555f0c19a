"""Views of runs that never were, for the tests of what shows them."""

from __future__ import annotations

from dataclasses import replace

from launcher.view.model import (
    ChannelView,
    EventView,
    LatencyView,
    NodeState,
    NodeView,
    PhaseView,
    RunView,
)

BOUNDS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STARTED_S = 1_750_000_000.0


def latency(*counts: int, bounds_s: tuple[float, ...] = BOUNDS_S) -> LatencyView:
    """A histogram with so many frames in each bucket, the last one beyond all bounds."""
    padded = counts + (0,) * (len(bounds_s) + 1 - len(counts))
    cumulative = tuple(sum(padded[: index + 1]) for index in range(len(padded)))
    return LatencyView(bounds_s, cumulative, sum_s=0.05 * cumulative[-1])


def node(name: str, **changes: object) -> NodeView:
    """An active node that computes half of the time, within its predicted memory."""
    usual = NodeView(
        name=name,
        state=NodeState.ACTIVE,
        engine="onnxruntime",
        device="cpu",
        busy=0.5,
        waited=0.02,
        busy_s_total=1800.0,
        rss_bytes=90_000_000,
        predicted_bytes=100_000_000,
        limit_bytes=200_000_000,
        sent_bytes_total=2_000_000_000,
        received_bytes_total=1_000_000_000,
        phases=(PhaseView(f"{name}/0", 12, 40_000, 1800.0, 0.044),),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def channel(producer: str, consumer: str, frames: int = 1, capacity: int = 4) -> ChannelView:
    """A channel between two nodes, or from or to the launcher, `@host`."""
    return ChannelView(
        f"{producer}-{consumer}", producer, consumer, frames, capacity, frame_bytes=400_000
    )


def run(**changes: object) -> RunView:
    """Three nodes in a row that have streamed for an hour; b, in the middle, is the bottleneck."""
    usual = RunView(
        taken_s=STARTED_S + 3600,
        started_s=STARTED_S,
        state="streaming",
        epoch=3,
        models=("resnet50",),
        strategy="vertical",
        batch=1,
        predicted_rate=12.5,
        rate=11.9,
        frames_total=40_000,
        dropped_total=7,
        recoveries_total=1,
        in_flight=6,
        latency=latency(0, 0, 0, 0, 20_000, 20_000),
        nodes=(node("a"), node("b", busy=0.97, waited=0.0), node("c", busy=0.4)),
        channels=(
            channel("@host", "a", 2),
            channel("a", "b", 4),
            channel("b", "c", 0),
            channel("c", "@host", 0),
        ),
        run="d1",
        events=(
            EventView(STARTED_S + 600, "warning", "b is lost: it has not answered for 3.0 s"),
            EventView(STARTED_S + 602, "info", "streaming again with a, c"),
        ),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]
