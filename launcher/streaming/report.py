"""Reports on a stream: what was read, dropped, computed and delivered, as a value and as JSON.

Nothing here grows with the number of frames. Latencies are quantiles, to 1 %, of the time since a
frame was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launcher.core.roll import Absence
from launcher.errors import EXIT_FAILED, EXIT_FINE
from launcher.plan.batch_size import BatchChoice
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.prediction import predicted_run
from launcher.results.energy import node_energies
from launcher.results.report import (
    NodeReport,
    NonFiniteResults,
    RecoveryReport,
    node_reports,
    recovery_reports,
    streamed_frames,
)
from launcher.run.runtime import RunResult
from launcher.streaming.delivery import Delivery
from launcher.streaming.gaps import Gaps
from launcher.streaming.source_stream import SourceStream
from launcher.view.frames import Latencies
from launcher.view.history import quantile_s
from nodes.protocol.messages import Order
from partition.plan import Plan


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """The latency that half of the frames, and 99 %, did not exceed; None if there was none."""

    median_s: float | None
    percentile_99_s: float | None


@dataclass(frozen=True, slots=True)
class SinkReport:
    """Counts of a sink's results, by outcome: `given` is the sum of the four below."""

    sink: str
    given: int
    delivered: int
    dropped: int
    refused: int
    not_delivered: int
    losses: int
    """How often the sink was lost."""
    latency: LatencyReport


@dataclass(frozen=True, slots=True)
class StreamReport:
    """A stream that has ended: `read` is the sum of `dropped`, `refused` and those computed.

    `results` are fewer than those where the stream was aborted. `nodes` are those of the last plan,
    and their figures count from the last recovery on; there are none if it was aborted.
    """

    network: str
    strategy: str
    order: str
    source: str
    read: int
    dropped: int
    refused: int
    results: int
    seconds: float
    """From when the first frame was read until the last result."""
    frames_per_second: float
    gaps: Gaps
    latency: LatencyReport
    """The latency until the result arrived, before any sink had it."""
    in_flight: int
    period_planned_s: float
    sinks: tuple[SinkReport, ...]
    infinite: NonFiniteResults | None
    bytes_per_frame: int
    proof: str
    explanation: str
    nodes: tuple[NodeReport, ...]
    recoveries: tuple[RecoveryReport, ...]
    signal: int | None
    """The signal with which the user has stopped the stream; None if it ended by itself."""
    frames: int | None
    """How many frames were asked for."""
    batch: int = 1
    """How many frames a node computed at once."""
    absences: tuple[Absence, ...] = ()
    """The nodes without which the stream began."""
    batch_choice: BatchChoice | None = None
    """How `batch` was chosen; None if the user has."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-like data."""
        return asdict(self)

    @property
    def problem(self) -> str | None:
        """A sentence, if results that the user counts on are missing although nobody stopped it."""
        missing = [sink for sink in self.sinks if sink.not_delivered]
        if not missing or self.signal is not None:
            return None
        return "; ".join(
            f"{sink.sink}: {sink.not_delivered} results were not delivered, as it took none for "
            "too long"
            for sink in missing
        )

    @property
    def exit_code(self) -> int:
        """0 if everything was streamed that was asked for, or until the user stopped it."""
        if self.problem is not None:
            return EXIT_FAILED
        if self.signal is not None and self.frames is not None and self.read < self.frames:
            return 128 + self.signal
        return EXIT_FINE


def stream_report(
    stream: SourceStream,
    plan: Plan,
    result: RunResult | None,
    *,
    order: Order,
    in_flight: int,
    infinite: NonFiniteResults | None,
    signal: int | None,
    frames: int | None,
    measured: Plan | None = None,
    cpus: Mapping[str, Sequence[int]] | None = None,
    machines: Mapping[str, str | None] | None = None,
    choice: BatchChoice | None = None,
) -> StreamReport:
    """Report on a stream; `result` is None if it was aborted, `measured` is the plan with warm-up
    times. `choice` says how the number of frames in a batch was chosen, if it was.
    """
    counts = stream.reader.frames.counts
    ended_s, began_s = stream.ended_s, stream.began_s
    seconds = 0.0 if ended_s is None or began_s is None else ended_s - began_s
    nodes: tuple[NodeReport, ...] = ()
    if result is not None and measured is not None and stream.results:
        predicted = predicted_run(measured, result, order, THIS_MACHINE, cpus, stream.results)
        own = streamed_frames(result, stream.results)
        # A live source decides when frames come, so predictions are for its pace.
        period_s = max(measured.frame_s, seconds / stream.results)
        energies = node_energies(measured, result, own, period_s, machines or {})
        nodes = node_reports(plan, result, predicted.fifo_bytes, stream.results, energies)
    return StreamReport(
        network=plan.network,
        strategy=plan.strategy,
        order=order,
        source=stream.reader.source.description,
        read=counts.offered + stream.reader.refused,
        dropped=counts.dropped,
        refused=stream.reader.refused,
        results=stream.results,
        seconds=seconds,
        frames_per_second=stream.results / seconds if seconds > 0 else 0.0,
        gaps=stream.reader.gaps,
        latency=_latency(stream.latencies),
        in_flight=in_flight,
        period_planned_s=plan.frame_s,
        sinks=tuple(map(_sink, stream.deliveries)),
        infinite=infinite,
        bytes_per_frame=plan.bytes_per_frame,
        proof=plan.proof,
        explanation=plan.explanation,
        nodes=nodes,
        recoveries=() if result is None else recovery_reports(result),
        signal=signal,
        frames=frames,
        batch=plan.batch,
        absences=() if result is None else result.absences,
        batch_choice=choice,
    )


def _latency(latencies: Latencies) -> LatencyReport:
    counted = latencies.view()
    return LatencyReport(quantile_s(counted, 0.5), quantile_s(counted, 0.99))


def _sink(delivery: Delivery) -> SinkReport:
    counts = delivery.counts
    return SinkReport(
        sink=delivery.description,
        given=counts.given,
        delivered=counts.delivered,
        dropped=counts.dropped,
        refused=counts.refused,
        not_delivered=counts.waiting,
        losses=delivery.losses,
        latency=_latency(delivery.latencies),
    )
