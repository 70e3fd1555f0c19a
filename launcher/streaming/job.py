"""Carries out the command `launch`: checks the configuration, plans, runs, compares and reports.

Everything that the user wrote is checked before the first agent is started. Agents are greeted once
before the search, which uses what they report. They are ended, and the temporary
folder is deleted, however the command ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from ga.auto import HURRIED
from launcher.config.load import Cluster
from launcher.config.task import FINDS_PLACES
from launcher.core.stream import ENDLESS
from launcher.plan.batch_size import BatchChoice
from launcher.plan.devices import nodes_of
from launcher.plan.engines import (
    asks_for_engines,
)
from launcher.plan.files import (
    shown_cluster_text,
)
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.plan.prediction import with_warmup
from launcher.plan.profile.use import with_own_watts
from launcher.plan.replanning import Replanner
from launcher.progress import ProgressDisplay
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import Agreement, worst_of
from launcher.results.journal.journal import Journal
from launcher.results.networks import check_inputs, open_results
from launcher.results.page.comparison import of_run, run_problems
from launcher.results.page.page import RunRecord
from launcher.results.page.recording import RunRecorder
from launcher.results.report import AloneReport, Report, make_report, pace_report, removal_text
from launcher.results.resuming import CompletedRun, check_room, journal_place, journal_report
from launcher.results.sentences import report_lines
from launcher.results.streamed import Streamed
from launcher.results.summary import figure_lines, limit_lines
from launcher.results.whole import ExecutedPlans, compare_all
from launcher.run.feed import Feed
from launcher.run.parts import Part, parts_of
from launcher.run.request import Request
from launcher.run.runner import Runtime, real_runtime
from launcher.run.runtime import (
    RunResult,
    SubnetFiles,
)
from launcher.scratch import scratch_folder
from launcher.signals import ENDING, stopping_on_signals
from launcher.streaming.in_flight import frames_in_flight
from launcher.streaming.live_run import LiveRun, observe
from launcher.streaming.opening import Ends, open_ends
from launcher.streaming.preparing import (
    CheckedRequest,
    PreparedRun,
    check_engines,
    counting,
    doubts,
    in_sentences,
    planned,
    prepared,
    read_job,
)
from launcher.streaming.running import StreamDisplay, show_update, stream_of
from launcher.streaming.source_stream import SourceStream
from launcher.streaming.target import LoadedTarget
from launcher.tasks.opening import assumed, kind_of
from nodes.host.heap import give_back_free_memory
from nodes.protocol.messages import EngineChoice
from partition.alone import fullest_bytes
from partition.plan import Plan

if TYPE_CHECKING:
    from cnn.model import Model


@dataclass(frozen=True)
class Outcome:
    """The plan, and the report of its run unless the user wanted only the plan; or neither, if the
    journal that was to be resumed is `complete`."""

    plan: Plan | None
    report: Report | None
    complete: CompletedRun | None = None
    engines: Mapping[str, EngineChoice] = field(default_factory=dict)
    """The engines of the nodes of a plan that was not run, or those asked for."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why measurements chose these engines, by node."""
    batch: BatchChoice | None = None
    """How the number of frames in a batch was chosen, if it was."""


OpenEnds = Callable[[Request, Cluster, "Model", Results], Ends]
"""Opens both ends of a stream, as `open_ends` does."""


MOST_IN_FLIGHT = 10_000
"""The most frames of a source in flight on any plan."""


def launch(
    request: Request,
    progress: ProgressDisplay,
    *,
    started_s: float,
    runtime: Runtime = real_runtime,
    loaded: LoadedTarget | None = None,
    open_ends: OpenEnds = open_ends,
) -> Outcome:
    """Carry out a request; `started_s` is when the command began, on the monotonic clock.

    Raises `BadInputError` before a frame is streamed, `RunFailedError` after that.
    """
    with in_sentences():
        job = read_job(request, progress, loaded)
        return _launch(job, progress, started_s, runtime, open_ends)


def _launch(
    job: CheckedRequest,
    progress: ProgressDisplay,
    started_s: float,
    runtime: Runtime,
    open_ends: OpenEnds,
) -> Outcome:
    if job.request.plan_only:
        return _planned(job, progress, runtime)
    request, cluster, model = job.request, job.cluster, job.model
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        results = open_results(request, cluster, model, folder, stack)
        if results.inputs is not None:
            progress.say(f"{len(results.inputs)} frames: {results.inputs.description}")
        if _fits_images(results, cluster, model) and (sentence := assumed(cluster, model)):
            progress.say(sentence)
        if results.journal is not None:
            _restore(results, results.journal, journal_place(request, cluster), progress)
        if not results.open:
            return Outcome(None, None, _complete(cluster, model, results, folder, progress))
        ends = open_ends(request, cluster, model, results)
        shown = StreamDisplay(
            progress, results.frames if results.frames == ENDLESS else len(results.open)
        )
        stream = stack.enter_context(stream_of(ends, results, cluster, model, shown.say))
        runner = stack.enter_context(runtime(job.nodes))
        is_whole = results.first is not None and results.sample is None
        ready = prepared(job, runner, folder, stack, progress, checks=not is_whole)
        ran = _run(job, ready, results, stream, shown)
        result, plan = ran.result, ready.plan
        agreements: Mapping[str, Agreement] = {}
        if result is not None:
            agreements = compare_all(
                model,
                results,
                folder,
                counting(progress, "comparing with the whole model"),
                cluster.config.tolerance,
                ExecutedPlans(
                    plan, ready.subnets, result.replanned, _rounds_alike(cluster, result, results)
                ),
            )
            plan = _with_search(result.replanned or plan, ready.options.replan)
        pace = None if results.inputs is None else cluster.config.pace
        report = make_report(
            plan,
            plan if result is None else with_warmup(plan, result),
            result,
            order=ready.options.run.order,
            input_description=ends.source.description,
            first_result_s=(results.first_result_s or time.monotonic()) - started_s,
            agreement=worst_of(agreements.values()),
            networks=agreements if len(agreements) > 1 else None,
            journal=journal_report(results),
            infinite=results.infinite,
            pace=None if pace is None else pace_report(pace, results.dropped),
            accuracy=results.accuracy(),
            cpus={node.name: node.cpus for node in cluster.config.nodes},
            machines={node.name: machine_of(node) for node in cluster.config.nodes},
            reasons=job.planner.reasons,
            batch=ready.choice,
            max_latency_s=cluster.config.max_latency,
            alone=None if result is None else _alone(job, ready, plan, result),
            streamed=ran.streamed,
            compared=None if results.sample is None else len(results.compared),
            own_watts=with_own_watts(cluster),
            is_live=ends.source.is_live,
            doubts=doubts(job, plan),
        )
        if request.report is not None:
            record = replace(
                ran.recorder.record,
                plan=plan,
                advice=limit_lines(report),
                summary=figure_lines(report),
                lines=report_lines(report),
                compared=of_run(report, plan),
                nodes=report.nodes,
                problems=run_problems(report),
            )
            ran.recorder.write(record, None if result is None else request.trace)
            progress.say(f"report: {request.report}")
    return Outcome(plan, report)


def _fits_images(results: Results, cluster: Cluster, model: Model) -> bool:
    """Whether the network says how images are fitted that a source gives, or files have.

    The frames of files are described before that, and a classifier's images as well.
    """
    if results.inputs is None:
        return True
    is_picture = results.inputs.items[0].picture is not None  # not with several networks
    return is_picture and kind_of(cluster.task_of(model.network.name), model) in FINDS_PLACES


def _planned(job: CheckedRequest, progress: ProgressDisplay, runtime: Runtime) -> Outcome:
    """Plan, and run nothing."""
    cluster = job.cluster
    if not cluster.config.has_source:
        check_inputs(job.request, cluster, job.model)
    engines = {node.name: node.choice for node in job.planner.nodes}
    if asks_for_engines(job.planner.nodes):
        nodes = nodes_of(cluster, job.planner.facts)
        with runtime(nodes) as runner:
            roll = runner.call_roll(nodes, cluster.config.run.connect_timeout_s)
        job, found = check_engines(replace(job, roll=roll), progress)
        engines |= found
    job, plan = planned(job, progress)
    return Outcome(plan, None, engines=engines, reasons=job.planner.reasons, batch=job.choice)


class _GivenUpError(Exception):
    """Frames in flight are not waited for."""


@dataclass
class _Ran:
    """A stream that has ended, with the measurements of its run unless that was abandoned."""

    result: RunResult | None
    streamed: Streamed
    recorder: RunRecorder


def _run(
    job: CheckedRequest,
    ready: PreparedRun,
    results: Results,
    stream: SourceStream,
    shown: StreamDisplay,
) -> _Ran:
    """Stream to the end; with a source or sinks, a signal is one as well."""
    cluster, plan, pace = job.cluster, ready.plan, job.cluster.config.pace
    config, has_source = cluster.config, cluster.config.has_source
    is_filled = not has_source and pace is None  # a batch waits until it is complete
    feed = Feed(
        Part(job.model, is_alone=True),  # also if it is several, merged
        MOST_IN_FLIGHT if has_source else None,
        most_unsent=None if has_source or pace is None else plan.batch,
        count=ENDLESS if has_source else len(results.open),
        batch=plan.batch,
        batch_wait_s=None if is_filled else config.run.batch_wait_s,
        timed=not has_source,
    )
    observation = observe((feed,))
    shown.progress.name_run(observation.run)
    observation.count_drops(lambda: stream.reader.frames.counts.dropped)
    options = replace(
        ready.options,
        source_period_s=0.0 if pace is None else plan.batch / pace.rate,
        state=results.state.now if results.state else None,
        trace=job.request.trace,
        timed=not has_source,
        observation=observation,
    )
    if has_source and config.run.start_wait_s is None:
        options = replace(options, start_wait_s=inf)
    recorder = RunRecorder(
        job.request.report, observation.view, run_record(cluster, plan, observation.models)
    )
    run = LiveRun(
        replace(ready, options=options).stream,
        (feed,),
        partial(show_update, shown.progress),
        observation,
    )

    def cluster_ended(ended: Future[None]) -> None:
        if run.result is None:  # not for having all results
            stream.cluster_ended(ended)

    feed.ended.add_done_callback(cluster_ended)
    most = min(frames_in_flight(plan), MOST_IN_FLIGHT)
    in_flight: Callable[[], int] = (lambda: most) if has_source else (lambda: feed.most)
    ending = ENDING if has_source or config.sinks else ()
    with suppress(_GivenUpError), recorder, run:
        if has_source:
            which = (
                "no result" if results.sample is None else f"one result in {config.verify_every}"
            )
            shown.progress.say(
                f"streaming {stream.reader.source.description}, {most} frames in flight; "
                f"{which} is compared with the whole model's"
            )
        give_back_free_memory()  # that planning needed
        with stopping_on_signals(stream.stop, ending) as stopped:
            stream.run(feed.submit, in_flight, partial(shown.show, stream), feed.end)
        if stream.is_given_up:
            raise _GivenUpError
    asked = None if results.frames == ENDLESS else len(results.open)
    return _Ran(run.result, stream.counts(in_flight(), stopped.number, asked), recorder)


def _with_search(plan: Plan, replan: object) -> Plan:
    """Return the plan; if it was made in a hurry and the run ended before the search, its
    explanation says so."""
    if plan.strategy != HURRIED or (isinstance(replan, Replanner) and replan.has_searched):
        return plan
    text = "the run ended before the search for a better plan; --search again searches first"
    return replace(plan, explanation=f"{plan.explanation}; {text}")


def _alone(job: CheckedRequest, ready: PreparedRun, plan: Plan, result: RunResult) -> AloneReport:
    """Return the performance of one node alone, by the measurements of the run."""
    replan = ready.options.replan
    planner = replan.planner if isinstance(replan, Replanner) else job.planner
    standby = {node.name for node in planner.nodes if node.standby}
    nodes = {device.name for device in plan.devices}
    never_came = {absence.node for absence in result.absences if absence.came_s is None}
    nodes |= {node.name for node in ready.nodes} - job.absent.keys() - never_came - standby
    alone, why_not = planner.alone(nodes, with_warmup(plan, result))
    if why_not and job.saved is not None:
        why_not = "the plan is a saved one: launch its cluster.yaml to plan again"
    return AloneReport(alone.phases[0].device, alone.frame_s, fullest_bytes(alone), why_not)


def run_record(cluster: Cluster, plan: Plan, models: Sequence[str]) -> RunRecord:
    """Return the record of a run before it streams, for its page."""
    return RunRecord(", ".join(models), plan, shown_cluster_text(cluster))


@contextmanager
def open_live(
    request: Request,
    progress: ProgressDisplay,
    *,
    most: int,
    runtime: Runtime = real_runtime,
    loaded: LoadedTarget | None = None,
    check: Callable[[Model], None] = lambda _: None,
    follows: bool = False,
    is_service: bool = False,
) -> Iterator[Live]:
    """Plan and deploy what `request` names, and stream the frames that are submitted.

    Each network has its own stream, in which at most `most` frames are in flight. Inputs, results
    and comparison of the request play no part; the simplified network is compared with the file,
    once per model. `check` is called with the model before anything is started. A service waits
    without a limit for the nodes that it needs to begin, unless the user sets one. Raises
    `LauncherError`.
    """
    with ExitStack() as stack:
        with in_sentences():
            job = read_job(request, progress, loaded, is_pushed=True)
            check(job.model)
            parts = parts_of(job.model)
            if len(parts) > 1 and job.cluster.config.run.order == "strict":
                raise job.cluster.error(
                    ("run", "order"),
                    "phases that fire in turn need frames of all networks at the same rate; "
                    "write pipelined, or use launch",
                )
            folder = stack.enter_context(scratch_folder())
            runner = stack.enter_context(runtime(job.nodes))
            ready = prepared(job, runner, folder, stack, progress, checks=True)
        if is_service and job.cluster.config.run.start_wait_s is None:
            endless = replace(ready.options, start_wait_s=inf)
            ready = replace(ready, options=endless)
        batch, wait_s = ready.plan.batch, job.cluster.config.run.batch_wait_s
        feeds = [Feed(part, most, batch=batch, batch_wait_s=wait_s) for part in parts]
        versions = {model.name: str(model.config.version) for model in job.cluster.models}
        observation = observe(feeds, versions)
        progress.name_run(observation.run)
        untimed = replace(ready.options, timed=False, observation=observation, follows=follows)
        ready = replace(ready, options=untimed)

        run = stack.enter_context(
            LiveRun(ready.stream, feeds, partial(show_update, progress), observation)
        )
        yield Live(run, ready.plan, job.model, job.cluster, ready.subnets, ready.choice)


@dataclass(frozen=True)
class Live:
    """A run into which frames are pushed, its plan, and what that was made of.

    `cluster` says what is done with images, and `choice` how the number of frames in a batch was
    chosen, if it was.
    """

    run: LiveRun
    plan: Plan
    model: Model
    cluster: Cluster
    subnets: Mapping[str, SubnetFiles]
    choice: BatchChoice | None = None


def _restore(results: Results, journal: Journal, where: str, progress: ProgressDisplay) -> None:
    """Restore the results in the journal, and check that the disk has room for the others."""
    total = None if results.frames == ENDLESS else results.frames
    results.restore(lambda done: progress.update("reading the journal", done, total))
    check_room(journal, where)
    left = "" if total is None else f", {len(results.open)} frames are left"
    progress.say(
        f"journal {journal.folder}: {results.restored} results are saved{left}; "
        "if this run is interrupted, --resume continues it" + _removed(results)
    )


def _removed(results: Results) -> str:
    report = journal_report(results)
    return "" if report is None else removal_text(report)


def _complete(
    cluster: Cluster, model: Model, results: Results, folder: Path, progress: ProgressDisplay
) -> CompletedRun | None:
    journal = journal_report(results)
    if results.journal is None or journal is None:
        return None
    show = counting(progress, "comparing with the whole model")
    agreements = compare_all(model, results, folder, show, cluster.config.tolerance)
    return CompletedRun(
        frames=results.frames,
        dropped=results.journal.dropped_count,
        dropped_frames=results.journal.dropped(),
        journal=journal,
        agreement=worst_of(agreements.values()),
        accuracy=results.accuracy(),
    )


def _rounds_alike(cluster: Cluster, result: RunResult, results: Results) -> bool:
    """Whether all results come from one plan, by ONNX Runtime on this machine's own processor."""
    here = all(machine_of(node) == THIS_MACHINE for node in cluster.config.nodes)
    same = EngineChoice("onnxruntime", "cpu")
    alike = all(replace(choice, options=()) == same for choice in result.engines.values())
    return here and alike and not result.recoveries and not results.restored
