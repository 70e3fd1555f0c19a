"""Makes the report of a run from the plan and the measurements, as a value and as JSON.

Times are measured at the launcher. The period is measured from the first result, when the pipeline
is full, to the last one; frames per second count from the first frame sent to the last result
received. The report has three periods side by side: planned (before the run), predicted (simulated
with the agents' warm-up times) and measured. Latencies and the content of FIFOs are predicted and
measured.

The times of single frames are kept for files, whose number is known. A source decides when frames
come: its frames have no predicted rate, and quantiles in place of their latencies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from launcher.config.run import Overload, Pace
from launcher.core.recovery import Cause
from launcher.core.roll import Absence
from launcher.errors import EXIT_FAILED, EXIT_FINE
from launcher.plan.batch_size import BatchChoice
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.prediction import Times, expected_times, predicted_run, times_of
from launcher.results.comparison.agreement import Agreement
from launcher.results.energy import NodeEnergy, node_energies
from launcher.results.journal.ranges import FrameRanges
from launcher.results.limit import Limit, limit_of
from launcher.results.streamed import Streamed
from launcher.run.runtime import RunResult
from nodes.protocol.messages import EngineChoice, Order, Stats
from nodes.protocol.payload import Array, is_finite
from partition.devices import Device
from partition.plan import Plan
from partition.prediction.timing import device_energies_j, energy_j, power_w, wire_bytes
from partition.wire import LOSSY

_UNUSED = Stats(0, (), (), 0.0, 0.0, 0, 0, 0, 0, 0, 0, 0)
"""The statistics of a node without layers, which the run did not use."""

_NO_ENERGY = NodeEnergy(None, 0.0, None, "", "")


@dataclass(frozen=True, slots=True)
class NodeReport:
    """The figures of one node.

    Memory is in bytes: predicted by the plan's model and by Eq. 2 of Tang & Stefanov, and the
    user's limit. Measured are the peak, the resident memory at the end, its anonymous part (which
    no file backs), and that of the idle agent before the deployment. Pages of programs and
    libraries are not counted, because the kernel can reclaim them. `fifo_*` is the most that the
    FIFOs into the node held at the same time. Busy seconds are wall-clock time in firings, and
    include the time for which a node waits for a shared core; `cpu_s_per_frame` does not. Engine,
    device and precision are None for a node without layers. Joules
    per frame include waiting; `watts` is the mean power (None: not measured, and `unmetered` says
    why), `meter` what measured it.
    """

    name: str
    layers: int
    phases: int
    memory_predicted_bytes: int
    memory_eq2_bytes: int
    memory_limit_bytes: int | None
    memory_measured_bytes: int
    memory_resident_bytes: int
    memory_anonymous_bytes: int
    memory_idle_bytes: int
    fifo_predicted_bytes: int
    fifo_measured_bytes: int
    busy_fraction: float
    busy_s_per_frame: float
    cpu_s_per_frame: float
    sent_bytes: int
    received_bytes: int
    threads: int = 1
    engine: str | None = None
    device: str | None = None
    precision: str | None = None
    engine_reason: str | None = None
    joules_per_frame: float | None = None
    joules_per_frame_predicted: float = 0.0
    watts: float | None = None
    meter: str = ""
    unmetered: str = ""
    assumed_watts: bool = False
    """Whether the predicted joules rest on watts that nobody has stated or measured."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """A completed change of epochs, see `launcher.core.recovery.Recovery`.

    `pause_s` passed between the last result before it and the first one after it; None if there was
    no result before it. During `waited_s` of this time too few nodes were present.
    """

    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: float
    frame: int
    replayed: int
    pause_s: float | None
    cause: Cause = "loss"
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The share of streamed frames whose likeliest class is the true one, in 0..1.

    `whole_model` is None if there was no comparison with the whole model.
    """

    distributed: float
    whole_model: float | None


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The folder of the journal: `saved` results, of which `resumed` were saved before this launch;
    `damaged` ones were computed again.

    To keep a bound, `removed` results are no longer there; `removed_before` of them were removed
    before this launch, and it has not compared them. `removed_frames` has the ranges (first, last)
    of settled frames whose results, if they had one, were removed.
    """

    folder: str
    saved: int
    resumed: int
    damaged: int
    removed: int = 0
    removed_before: int = 0
    removed_frames: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PaceReport:
    """The source's pace (`rate` in frames per second), and which frames were dropped because
    `queue_frames` were waiting: `dropped_frames` has ranges (first, last) of them."""

    rate: float
    on_overload: Overload
    queue_frames: int
    dropped: int
    dropped_frames: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WireReport:
    """The channels between nodes whose tensors are encoded on their way: their number by encoding.

    `raw_bytes_per_frame` is what all channels together would send per frame without that.
    """

    channels: Mapping[str, int]
    raw_bytes_per_frame: int

    @property
    def is_lossless(self) -> bool:
        """Whether all tensors arrive as they were sent."""
        return not LOSSY.intersection(self.channels)


def wire_report(plan: Plan) -> WireReport | None:
    """Report on the encoded channels of a plan; None if all are raw."""
    encodings = Counter[str](c.encoding for c in plan.channels if c.encoding != "raw")
    if not encodings:
        return None
    raw = (replace(channel, encoding="raw") for channel in plan.channels)
    return WireReport(dict(encodings), wire_bytes(raw, plan.dealing) // plan.batch)


@dataclass(frozen=True, slots=True)
class NonFiniteResults:
    """Results with NaN or infinity: their number, and the first one's frame and output."""

    results: int = 0
    first_frame: int | None = None
    first_output: str | None = None

    def seen(self, frame: int, outputs: Mapping[str, Array]) -> NonFiniteResults:
        """Return this with one more frame's result counted."""
        found = next((name for name in outputs if not is_finite(outputs[name])), None)
        if found is None:
            return self
        if self.first_frame is None:
            return NonFiniteResults(1, frame, found)
        return replace(self, results=self.results + 1)


@dataclass(frozen=True, slots=True)
class AloneReport:
    """The predicted figures of the node on which the whole network has the shortest period.

    If the plan is slower than this node, `why_not` says why it uses others. Otherwise it is empty.
    """

    node: str
    period_s: float
    memory_bytes: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A finished run.

    Periods and latencies that were predicted or measured are None for the frames of a source, and
    if there was no result. `nodes` are those of the last plan; there are none if the run was
    abandoned.
    """

    network: str
    strategy: str
    order: str
    input: str
    frames: int
    seconds: float
    frames_per_second: float
    period_planned_s: float
    period_predicted_s: float | None
    period_measured_s: float | None
    latency_predicted_s: float | None
    latency_s: float | None
    latency_worst_s: float | None
    first_result_s: float
    agreement: Agreement | None
    accuracy: Accuracy | None
    bytes_per_frame: int
    """The bytes that nodes and launcher send each other per frame, by the plan."""
    proof: str
    explanation: str
    nodes: tuple[NodeReport, ...]
    joules_per_frame: float | None = None
    """The energy of all nodes; None unless every node with a phase was measured."""
    joules_per_frame_predicted: float = 0.0
    networks: Mapping[str, Agreement] = field(default_factory=dict)
    """The distance of each network's results from the whole model's, if there are several."""
    recoveries: tuple[RecoveryReport, ...] = ()
    """If there are any, `nodes` are those of the last plan, and their figures count from the last
    recovery on."""
    absences: tuple[Absence, ...] = ()
    """The nodes without which the run began."""
    infinite: NonFiniteResults | None = None
    """None if results were not checked for NaN and infinity."""
    journal: JournalReport | None = None
    """If there is one, `frames` counts only those that this launch streamed."""
    pace: PaceReport | None = None
    """If there is one, `frames` does not count dropped frames, and a latency begins when a frame
    is sent, after it has waited."""
    wire: WireReport | None = None
    """None if tensors between nodes are not encoded."""
    bytes_per_frame_measured: int = 0
    """The bytes that nodes and launcher have sent each other per frame."""
    batch: int = 1
    """How many frames a node computed at once. Periods are per frame, latencies of a frame."""
    batch_choice: BatchChoice | None = None
    """How `batch` was chosen; None if the user has."""
    max_latency_s: float | None = None
    """The bound on a frame's latency that the plan had to meet."""
    alone: AloneReport | None = None
    streamed: Streamed | None = None
    """The counts of the frames, from the source to each sink."""
    compared: int | None = None
    """How many results were compared with the whole model's, if not all."""
    limit: Limit | None = None
    """The node or link that limits the rate; None if nothing was computed."""
    doubts: tuple[str, ...] = ()
    """Sentences on values of cluster.yaml that measurements contradict."""

    @property
    def problem(self) -> str | None:
        """A sentence if a result differs from the whole model's, or was not delivered."""
        if self.agreement is not None and not self.agreement.agrees:
            return self.agreement.disagreement
        return None if self.streamed is None else self.streamed.problem

    @property
    def exit_code(self) -> int:
        """0 if everything was streamed that was asked for, or until the user stopped it."""
        if self.problem is not None:
            return EXIT_FAILED
        if self.streamed is not None and self.streamed.is_cut_short:
            return 128 + (self.streamed.signal or 0)
        return EXIT_FINE

    @property
    def agrees(self) -> bool:
        """Whether the results agree with the whole model's; True if they were not compared."""
        return self.agreement is None or self.agreement.agrees

    @property
    def worst_frame(self) -> int | None:
        """The frame with the largest error; None without a comparison."""
        return self.agreement.worst_input if self.agreement else None

    @property
    def worst_output(self) -> str | None:
        """The output of `worst_frame` with the largest error; None without a comparison."""
        return self.agreement.worst_output if self.agreement else None

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-like data; an infinite error (NaN in a result) becomes null.

        The keys of `streamed` stand among those of the report.
        """
        found = self.agreement
        data = asdict(replace(self, agreement=None, networks={}))
        del data["agreement"]
        data = (data.pop("streamed") or {}) | data
        data["networks"] = {name: _agreement_as_json(own) for name, own in self.networks.items()}
        return data | verdict_as_json(found)


_RULE = ("tolerance", "rule", "begins")


def verdict_as_json(found: Agreement | None) -> dict[str, Any]:
    """Return the comparison with the whole model as JSON-like data; an infinite error is null."""
    return {
        "verified": found is not None,
        "agrees": found.agrees if found else None,
        **(
            dict.fromkeys(("max_relative_error", "worst_frame", "worst_output", *_RULE))
            if found is None
            else _agreement_as_json(found)
        ),
    }


def _agreement_as_json(found: Agreement) -> dict[str, Any]:
    finite = {
        "max_relative_error": found.max_relative_error,
        "tolerance": found.allowed,
    }
    return {
        **{key: number if math.isfinite(number) else None for key, number in finite.items()},
        "worst_frame": found.worst_input,
        "worst_output": found.worst_output,
        "rule": found.rule,
        "begins": None if found.begins is None else asdict(found.begins),
    }


def plan_as_json(
    plan: Plan,
    engines: Mapping[str, EngineChoice] | None = None,
    reasons: Mapping[str, str] = MappingProxyType({}),
    batch: BatchChoice | None = None,
) -> dict[str, Any]:
    """Return a plan that was not run as JSON-like data, with the names of a run's report.

    `engines` is what nodes compute with, or what they are asked for; `auto` is left to the agent.
    Without it, the nodes have none. `reasons` says why measurements chose an engine, and `batch`
    how the number of frames in a batch was chosen, if it was.
    """
    layers = Counter(plan.assignment.values())
    phases = Counter(phase.device for phase in plan.phases)
    joules = device_energies_j(plan, plan.frame_s)
    return {
        "network": plan.network,
        "model_digest": plan.model_digest,
        "strategy": plan.strategy,
        "explanation": plan.explanation,
        "batch": plan.batch,
        "batch_choice": None if batch is None else asdict(batch),
        "period_planned_s": plan.frame_s,
        "latency_planned_s": plan.latency_s,
        "bytes_per_frame": plan.bytes_per_frame,
        "joules_per_frame_predicted": energy_j(plan),
        "watts_predicted": power_w(plan),
        "proof": plan.proof,
        "nodes": [
            {
                "name": device.name,
                "layers": layers[device.name],
                "phases": phases[device.name],
                "memory_predicted_bytes": plan.memory[device.name].total_bytes,
                "memory_eq2_bytes": plan.memory[device.name].eq2_bytes,
                "memory_limit_bytes": device.memory_bytes,
                "threads": device.threads,
                **_engine((engines or {}).get(device.name), reasons.get(device.name)),
                "joules_per_frame": None,
                "joules_per_frame_predicted": joules.get(device.name, 0.0),
            }
            for device in plan.devices
        ],
    }


def make_report(
    plan: Plan,
    measured: Plan,
    result: RunResult | None,
    *,
    order: Order,
    input_description: str,
    first_result_s: float,
    agreement: Agreement | None,
    accuracy: Accuracy | None,
    networks: Mapping[str, Agreement] | None = None,
    journal: JournalReport | None = None,
    pace: PaceReport | None = None,
    infinite: NonFiniteResults | None = None,
    cpus: Mapping[str, Sequence[int]] | None = None,
    machines: Mapping[str, str | None] | None = None,
    reasons: Mapping[str, str] = MappingProxyType({}),
    batch: BatchChoice | None = None,
    max_latency_s: float | None = None,
    alone: AloneReport | None = None,
    streamed: Streamed | None = None,
    compared: int | None = None,
    own_watts: Collection[str] = (),
    is_live: bool = False,
    doubts: Sequence[str] = (),
) -> Report:
    """Make the report of a run of `plan`; it was abandoned if there is no `result`.

    `measured` is the plan with the agents' warm-up times; `first_result_s` counts from the start of
    the command. `networks` has each network's agreement if there are several. `cpus` maps nodes on
    this machine to the CPUs to which their agents are bound. Nodes of the same machine have the
    same value in `machines`. `reasons` says why measurements chose a node's engine. `batch` says
    how the number of frames in a batch was chosen, if it was, and `max_latency_s` is the bound that
    the plan had to meet. `alone` says what one node alone would do. `streamed` has the counts of
    the frames, and `compared` that of the results that were compared, if not all were. `own_watts`
    are the nodes whose watts the user has stated. A source that `is_live` decides when frames come.
    `doubts` are as in the report.
    """
    is_timed = result is not None and bool(result.received_s)
    frames, seconds = (0, 0.0) if streamed is None else (streamed.results, streamed.seconds)
    times: Times | None = None
    expected: Times | None = None
    if result is not None and is_timed:
        frames = len(result.received_s)
        seconds = result.received_s[-1] - result.sent_s[0]
        times = times_of(result.sent_s, result.received_s, len(plan.dealing))
    nodes: tuple[NodeReport, ...] = ()
    sent_bytes = 0
    limit: Limit | None = None
    if result is not None and frames:
        predicted = predicted_run(measured, result, order, THIS_MACHINE, cpus, frames)
        own = streamed_frames(result, frames)
        if is_timed:
            expected = expected_times(predicted, plan)
            paced_s = 0.0 if pace is None else 1 / pace.rate
            period_s = max(expected.period_s, paced_s)
        else:  # the source decides when frames come
            period_s = max(measured.frame_s, seconds / frames)
        energies = node_energies(measured, result, own, period_s, machines or {})
        nodes = node_reports(
            plan, result, predicted.fifo_bytes, frames, energies, reasons, own_watts
        )
        sent_bytes = (result.sent_bytes + sum(node.sent_bytes for node in nodes)) // own
        limit = limit_of(
            plan,
            {node.name: node.busy_fraction for node in nodes if node.phases},
            seconds / frames if times is None else times.period_s,
            is_paced=is_live or pace is not None,
        )
    return Report(
        network=plan.network,
        strategy=plan.strategy,
        order=order,
        input=input_description,
        frames=frames,
        seconds=seconds,
        frames_per_second=frames / seconds if seconds > 0 else 0.0,
        period_planned_s=plan.frame_s,
        period_predicted_s=None if expected is None else expected.period_s,
        period_measured_s=None if times is None else times.period_s,
        latency_predicted_s=None if expected is None else expected.latency_s,
        latency_s=None if times is None else times.latency_s,
        latency_worst_s=None if times is None else times.latency_worst_s,
        first_result_s=first_result_s,
        agreement=agreement,
        accuracy=accuracy,
        bytes_per_frame=plan.bytes_per_frame,
        proof=plan.proof,
        explanation=plan.explanation,
        nodes=nodes,
        joules_per_frame=total_j(nodes),
        joules_per_frame_predicted=sum(node.joules_per_frame_predicted for node in nodes),
        networks=networks or {},
        recoveries=() if result is None else recovery_reports(result),
        absences=() if result is None else result.absences,
        journal=journal,
        pace=pace,
        infinite=infinite,
        wire=wire_report(plan),
        bytes_per_frame_measured=sent_bytes,
        batch=plan.batch,
        batch_choice=batch,
        max_latency_s=max_latency_s,
        alone=alone,
        streamed=streamed,
        compared=compared,
        limit=limit,
        doubts=tuple(doubts),
    )


def removal_text(journal: JournalReport) -> str:
    """Return a clause on the results that the journal no longer has; empty if there are none."""
    if not journal.removed:
        return ""
    ranges = ", ".join(f"{first} to {last}" for first, last in journal.removed_frames[:3])
    further = ", …" if len(journal.removed_frames) > 3 else ""
    earlier = (
        f", {journal.removed_before} of them before this launch, which has not compared those"
        if journal.removed_before
        else ""
    )
    return f"; {journal.removed} were removed to keep the bound (frames {ranges}{further}){earlier}"


def pace_report(pace: Pace, dropped: FrameRanges) -> PaceReport:
    """Report on a source with its own pace that dropped these frames."""
    return PaceReport(
        pace.rate, pace.on_overload, pace.queue_frames, len(dropped), dropped.ranges()
    )


def recovery_reports(result: RunResult) -> tuple[RecoveryReport, ...]:
    """Report on the changes of epochs of a run."""
    received_s = result.received_s
    return tuple(
        RecoveryReport(
            nodes=past.nodes,
            reasons=past.reasons,
            seconds=past.seconds,
            frame=past.frame,
            replayed=past.replayed,
            pause_s=received_s[past.frame] - received_s[past.frame - 1]
            if 0 < past.frame < len(received_s)
            else None,
            cause=past.cause,
            waited_s=past.waited_s,
        )
        for past in result.recoveries
    )


def _engine(choice: EngineChoice | None, reason: str | None) -> dict[str, str | None]:
    """Return the engine, device and precision of a report on a node, and why they were chosen."""
    if choice is None:
        return dict.fromkeys(("engine", "device", "precision", "engine_reason"))
    return {
        "engine": choice.engine,
        "device": choice.device,
        "precision": choice.precision,
        "engine_reason": reason,
    }


def total_j(nodes: Sequence[NodeReport]) -> float | None:
    """Return the measured joules per frame of all nodes; None unless every used one is measured."""
    joules = [node.joules_per_frame for node in nodes if node.phases]
    measured = [each for each in joules if each is not None]
    return sum(measured) if measured and len(measured) == len(joules) else None


def streamed_frames(result: RunResult, results: int) -> int:
    """Return the frames, of `results`, to which the figures of the nodes belong; at least 1."""
    first = result.recoveries[-1].frame if result.recoveries else 0
    return max(1, results - first)


def _has_assumed_watts(plan: Plan, device: Device) -> bool:
    """Return whether a device has the watts of one of which nothing is known."""
    unknown = Device(device.name)
    if (device.busy_w, device.idle_w) != (unknown.busy_w, unknown.idle_w):
        return False
    return all(phase.busy_w is None for phase in plan.phases if phase.device == device.name)


def node_reports(
    plan: Plan,
    result: RunResult,
    fifo_bytes: Mapping[str, int],
    results: int,
    energies: Mapping[str, NodeEnergy],
    reasons: Mapping[str, str] = MappingProxyType({}),
    own_watts: Collection[str] = (),
) -> tuple[NodeReport, ...]:
    """Report on the nodes of a run with that many results; `fifo_bytes` are predicted.

    `reasons` says why measurements chose a node's engine, and `own_watts` are the nodes whose watts
    the user has stated.
    """
    frames = streamed_frames(result, results)
    layers = Counter(plan.assignment.values())
    phases = Counter(phase.device for phase in plan.phases)
    reports = []
    for device in plan.devices:
        name = device.name
        memory, stats = plan.memory[name], result.stats.get(name, _UNUSED)
        busy_s = sum(stats.busy_s)
        energy = energies.get(name, _NO_ENERGY)
        reports.append(
            NodeReport(
                name=name,
                layers=layers[name],
                phases=phases[name],
                memory_predicted_bytes=memory.total_bytes,
                memory_eq2_bytes=memory.eq2_bytes,
                memory_limit_bytes=device.memory_bytes,
                threads=device.threads,
                memory_measured_bytes=stats.rss_peak_bytes,
                memory_resident_bytes=stats.rss_bytes,
                memory_anonymous_bytes=stats.anonymous_bytes,
                memory_idle_bytes=result.idle_rss_bytes.get(name, 0),
                fifo_predicted_bytes=fifo_bytes[name],
                fifo_measured_bytes=stats.fifo_peak_bytes,
                busy_fraction=busy_s / stats.elapsed_s if stats.elapsed_s > 0 else 0.0,
                busy_s_per_frame=busy_s / frames,
                cpu_s_per_frame=stats.cpu_s / frames,
                sent_bytes=stats.sent_bytes,
                received_bytes=stats.received_bytes,
                **_engine(result.engines.get(name), reasons.get(name)),
                joules_per_frame=energy.joules_per_frame,
                joules_per_frame_predicted=energy.joules_per_frame_predicted,
                watts=energy.watts,
                meter=energy.meter,
                unmetered=energy.unmetered,
                assumed_watts=name not in own_watts and _has_assumed_watts(plan, device),
            )
        )
    return tuple(reports)
