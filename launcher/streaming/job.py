"""Carries out the command `launch`: checks the configuration, plans, runs, compares and reports.

Everything that the user wrote is checked before the first agent is started. Agents are greeted once
before the search, which uses what they report. They are ended, and the temporary
folder is deleted, however the command ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cnn.errors import CnnError
from ga.auto import HURRIED, Auto
from launcher.config.cluster import RANDOM, JournalConfig
from launcher.config.ends.looks import is_source, is_video_file
from launcher.config.ends.source_kinds import parsed_source
from launcher.config.load import Cluster, load_cluster
from launcher.config.run import RunConfig
from launcher.config.units import parse_batch, parse_duration, parsed_option
from launcher.core.roll import Absence, Roll, ThreadShare
from launcher.errors import BadInputError, RunFailedError
from launcher.files import with_advice
from launcher.plan.batch_size import BatchChoice, check_latency, fill_s
from launcher.plan.boards import check_opsets, figures_wanted, with_boards
from launcher.plan.boards import described as described_boards
from launcher.plan.devices import Facts, nodes_of
from launcher.plan.engines import (
    asks_for_engines,
    check_precisions,
    split_by_engine,
    with_declared_memory,
)
from launcher.plan.engines import described as described_choices
from launcher.plan.files import (
    CLUSTER,
    FRONT,
    SUBNETS,
    SavedPlan,
    certified,
    check_save_folder,
    is_plan,
    no_target,
    read_plan,
    save_plan,
    shown_cluster_text,
)
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.plan.planner import Planner, read_planner
from launcher.plan.prediction import with_warmup
from launcher.plan.profile.bench import Bench, bench_options
from launcher.plan.profile.file import default_cache as profile_cache
from launcher.plan.profile.links import identities, kept_links, measure_machines
from launcher.plan.profile.use import check_agents, with_profile_option
from launcher.plan.replanning import Replanner
from launcher.plan.reported_memory import (
    described,
    exceeded,
    reported_limits,
    too_full,
    within_limits,
)
from launcher.plan.settings import (
    check_strategy,
    check_strategy_option,
    run_options,
    summary,
    wire_of,
)
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay
from launcher.quantities import counted, megabytes
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import worst_of
from launcher.results.journal.journal import Journal
from launcher.results.networks import check_inputs, open_results
from launcher.results.page.comparison import of_run, run_problems
from launcher.results.page.page import RunRecord
from launcher.results.page.recording import RunRecorder, check_report_file
from launcher.results.report import AloneReport, Report, make_report, pace_report, removal_text
from launcher.results.report_text import report_lines
from launcher.results.resuming import CompletedRun, check_room, journal_place, journal_report
from launcher.results.simplified import check_simplified, default_cache
from launcher.results.whole import ExecutedPlans, compare_all
from launcher.run.consent import hearing_consent
from launcher.run.feed import Feed
from launcher.run.live import LiveNetwork, LiveRun, observe
from launcher.run.parts import Part, parts_of
from launcher.run.request import Request
from launcher.run.runner import Runtime, real_runtime
from launcher.run.runtime import (
    REMOTE_S,
    Node,
    OnUpdate,
    PushedNetwork,
    Runner,
    RunOptions,
    RunResult,
    SubnetFiles,
    Update,
)
from launcher.run.tracing import check_trace_file
from launcher.scratch import scratch_folder
from launcher.streaming.batches import stream_in_batches
from launcher.streaming.streamed_files import StreamedFiles
from nodes.core.engines import described as described_offers
from nodes.protocol.messages import EngineChoice
from partition.alone import fullest_bytes
from partition.errors import PartitionError
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


@dataclass(frozen=True)
class LoadedTarget:
    """The cluster that a request names, with what the request changes in it, and its plan if that
    is saved."""

    cluster: Cluster
    saved: SavedPlan | None


def launch(
    request: Request,
    progress: ProgressDisplay,
    *,
    started_s: float,
    runtime: Runtime = real_runtime,
    loaded: LoadedTarget | None = None,
) -> Outcome:
    """Carry out a request; `started_s` is when the command began, on the monotonic clock.

    Raises `BadInputError` before a frame is streamed, `RunFailedError` after that.
    """
    with _sentences():
        return _launch(_read(request, progress, loaded), progress, started_s, runtime)


_OTHER_DISK = "name a folder on another disk: by TMPDIR, or by --save for a plan that is saved"
"""The remedy where subnets do not fit; see `_subnets_folder`."""


@contextmanager
def _sentences() -> Iterator[None]:
    """Turn errors of other packages and of the system into the launcher's own."""
    try:
        yield
    except (CnnError, PartitionError) as error:
        raise RunFailedError(str(error)) from error
    except BrokenPipeError:  # standard output or error is closed at the other end
        raise
    except OSError as error:  # such as a full disk: files that users name are checked when read
        what = with_advice(error, _OTHER_DISK)
        raise RunFailedError(f"{error.filename or 'the system'}: {what}") from error


def _launch(job: _Job, progress: ProgressDisplay, started_s: float, runtime: Runtime) -> Outcome:
    request, cluster, model = job.request, job.cluster, job.model
    if request.plan_only:
        if cluster.config.input.source is None:
            check_inputs(request, cluster, model)
        engines = {node.name: node.choice for node in job.planner.nodes}
        if asks_for_engines(job.planner.nodes):
            nodes = nodes_of(cluster, job.planner.facts)
            with runtime(nodes) as runner:
                roll = runner.call_roll(nodes, cluster.config.run.connect_timeout_s)
            job, found = _check_engines(replace(job, roll=roll), progress)
            engines |= found
        job, plan = _plan(job, progress)
        return Outcome(plan, None, engines=engines, reasons=job.planner.reasons, batch=job.choice)
    if cluster.config.is_stream:
        raise BadInputError(
            f"{cluster.source.name}: names a source or sinks, between which only the command "
            "launch streams; use the command, or csdf_edge.open"
        )
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        results = open_results(request, cluster, model, folder, stack)
        progress.say(f"{len(results.inputs)} frames: {results.inputs.description}")
        if results.journal is not None:
            _restore(results, results.journal, journal_place(request, cluster), progress)
        if not len(results.frames):
            return Outcome(None, None, _complete(cluster, model, results, folder, progress))
        runner = stack.enter_context(runtime(job.nodes))
        checks = not cluster.config.verify
        ready = _ready(job, runner, folder, stack, progress, checks=checks)
        plan, subnets, pace = ready.plan, ready.subnets, cluster.config.pace
        options = replace(
            ready.options,
            source_period_s=0.0 if pace is None else plan.batch / pace.rate,
            state=results.state.now if results.state else None,
            trace=request.trace,
        )
        files = StreamedFiles(results, pace)
        feed = Feed(most_unsent=None if pace is None else plan.batch, count=len(results.frames))
        network = LiveNetwork(Part(model, is_alone=True), feed)  # also if it is several, merged
        observation = observe((network,))
        progress.name_run(observation.run)
        observation.count_drops(lambda: len(results.dropped))
        options = replace(options, observation=observation)
        recorder = RunRecorder(
            request.report, observation.view, run_record(cluster, plan, observation.models)
        )
        live = LiveRun(
            replace(
                ready,
                options=options,
                batch_wait_s=None if pace is None else cluster.config.run.batch_wait_s,
            ).stream,
            (network,),
            lambda update: _show(progress, files.of_all(update)),
            observation,
        )
        with recorder, live as run:
            files.through(network)
        result = run.ended_well()
        show = _counting(progress, "comparing with the whole model")
        ran = ExecutedPlans(
            plan, subnets, result.replanned, _rounds_alike(cluster, result, results)
        )
        agreements = compare_all(model, results, folder, show, cluster.config.tolerance, ran)
        plan = _with_search(result.replanned or plan, ready.options.replan)
        report = make_report(
            plan,
            with_warmup(plan, result),
            result,
            order=ready.options.run.order,
            input_description=results.inputs.description,
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
            alone=_alone(job, ready, plan, result),
        )
        if request.report is not None:
            record = replace(
                recorder.record,
                plan=plan,
                lines=report_lines(report),
                compared=of_run(report, plan),
                nodes=report.nodes,
                problems=run_problems(report),
            )
            recorder.write(record, request.trace)
            progress.say(f"report: {request.report}")
    return Outcome(plan, report)


def _with_search(plan: Plan, replan: object) -> Plan:
    """Return the plan; if it was made in a hurry and the run ended before the search, its
    explanation says so."""
    if plan.strategy != HURRIED or (isinstance(replan, Replanner) and replan.has_searched):
        return plan
    text = "made quickly, and the run ended before the search; --search again searches first"
    return replace(plan, explanation=f"{plan.explanation}; {text}")


def _alone(job: _Job, ready: _Ready, plan: Plan, result: RunResult) -> AloneReport:
    """Return the performance of one node alone, by the measurements of the run."""
    replan = ready.options.replan
    planner = replan.planner if isinstance(replan, Replanner) else job.planner
    standby = {node.name for node in planner.nodes if node.standby}
    nodes = {device.name for device in plan.devices}
    nodes |= {node.name for node in ready.nodes} - job.absent.keys() - standby
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
        with _sentences():
            job = _read(request, progress, loaded, is_pushed=True)
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
            ready = _ready(job, runner, folder, stack, progress, checks=True)
        if is_service and job.cluster.config.run.start_wait_s is None:
            endless = replace(ready.options, start_wait_s=inf)
            ready = replace(ready, options=endless)
        wait_s = job.cluster.config.run.batch_wait_s
        networks = [LiveNetwork(part, Feed(most)) for part in parts]
        versions = {model.name: str(model.config.version) for model in job.cluster.models}
        observation = observe(networks, versions)
        progress.name_run(observation.run)
        untimed = replace(ready.options, timed=False, observation=observation, follows=follows)
        ready = replace(ready, options=untimed, batch_wait_s=wait_s)

        def show(update: Update) -> None:
            if update.stage != "streaming":  # the program reports on its own stream
                _show(progress, update)

        run = stack.enter_context(LiveRun(ready.stream, networks, show, observation))
        yield Live(run, ready.plan, job.model, ready.subnets, ready.choice)


@dataclass(frozen=True)
class Live:
    """A run into which frames are pushed, its plan, and what that was made of.

    `choice` says how the number of frames in a batch was chosen, if it was.
    """

    run: LiveRun
    plan: Plan
    model: Model
    subnets: Mapping[str, SubnetFiles]
    choice: BatchChoice | None = None


@dataclass(frozen=True)
class _Job:
    """The user's request, read and checked before any agent is started."""

    request: Request
    planner: Planner
    saved: SavedPlan | None
    nodes: tuple[Node, ...]
    roll: Roll = field(default_factory=Roll)
    """The answers of the agents, of nodes that can be used, after they were greeted."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """The reasons why nodes cannot be used when the run begins, in sentences."""
    hopeless: frozenset[str] = frozenset()
    """Absent nodes that cannot be used however long the run waits."""
    full: Mapping[str, str] = field(default_factory=dict)
    """Why nodes that answer have no room for anything, in sentences."""

    @property
    def cluster(self) -> Cluster:
        """The cluster as the user wrote it."""
        return self.planner.cluster

    @property
    def model(self) -> Model:
        """The model of a single frame: of inputs, results and the comparison."""
        return self.planner.model

    @property
    def begins_with_available(self) -> bool:
        """Whether the run begins without nodes that are absent, if the others suffice."""
        config = self.cluster.config
        return (
            config.run.start == "available"
            and config.recovery.enabled
            and not self.request.plan_only
        )

    @property
    def present(self) -> tuple[Node, ...]:
        """The nodes that can be used when the run begins, as far as is known."""
        return tuple(node for node in self.nodes if node.name not in self.absent)

    is_pushed: bool = False
    """Whether frames are pushed by others, and do not come from files."""
    choice: BatchChoice | None = None
    """How the number of frames in a batch was chosen, if it was and has been."""


@dataclass(frozen=True)
class _Ready:
    """A plan, its subnets on disk, and how to run it.

    An incomplete batch is sent once a frame of it has waited for `batch_wait_s`, see
    `launcher.streaming.batches`. Nodes that are `full` are reported as absent.
    """

    runner: Runner
    nodes: tuple[Node, ...]
    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    options: RunOptions
    batch_wait_s: float | None = None
    full: Mapping[str, str] = field(default_factory=dict)
    choice: BatchChoice | None = None

    def stream(self, frames: tuple[PushedNetwork, ...], on_update: OnUpdate) -> RunResult:
        """Stream frames until they end (`launcher.run.live.Stream`)."""
        if self.plan.batch == 1:
            return self._run(frames, on_update)
        batch, wait_s, timed = self.plan.batch, self.batch_wait_s, self.options.timed
        return stream_in_batches(self._run, frames, on_update, batch, wait_s, timed=timed)

    def _run(self, frames: tuple[PushedNetwork, ...], on_update: OnUpdate) -> RunResult:
        result = self.runner(self.plan, self.nodes, self.subnets, frames, on_update, self.options)
        full = (Absence(node, why) for node, why in self.full.items())
        return replace(result, absences=(*result.absences, *full))


def _read(
    request: Request,
    progress: ProgressDisplay,
    loaded: LoadedTarget | None,
    *,
    is_pushed: bool = False,
) -> _Job:
    loaded = loaded or load_target(request)
    cluster, saved = loaded.cluster, loaded.saved
    cluster = with_profile_option(cluster, request.profile)
    if request.save is not None:
        check_save_folder(request.save)
    if request.strategy is not None:
        check_strategy_option("--strategy", request.strategy)
    elif saved is None:
        check_strategy(cluster)
    check_precisions(cluster)
    wire_of(cluster)  # refuse changes of results that nobody asked for, before anything is read
    if not request.plan_only:
        nodes_of(cluster)  # it refuses missing keys before the model is read
    planner = replace(
        read_planner(cluster, progress),
        store=profile_cache(),
        searches_again=request.search == "again",
        hurries=_may_hurry(request, cluster, saved),
    )
    for part in planner.model.parts or (planner.model,):
        progress.say(summary(part.network, part.filled_seed))
    _ = planner.planned  # it refuses networks that cannot be in batches, before agents start
    return _Job(
        request,
        planner,
        saved,
        () if request.plan_only else nodes_of(cluster, planner.facts),
        is_pushed=is_pushed or cluster.config.is_stream,
    )


def _may_hurry(request: Request, cluster: Cluster, saved: SavedPlan | None) -> bool:
    """Whether a first plan may be made in a hurry, because the search can continue in the run."""
    is_for_now = not (request.plan_only or request.save or saved) and request.search != "again"
    return is_for_now and cluster.config.recovery.enabled and cluster.config.recovery.adapt


def _ready(
    job: _Job,
    runner: Runner,
    folder: Path,
    stack: ExitStack,
    progress: ProgressDisplay,
    *,
    checks: bool,
) -> _Ready:
    """Plan what `job` asks for; with `checks`, the simplified network is compared with the file
    first, while agents start."""
    if checks:
        show = _counting(progress, "comparing the simplified network")
        check_simplified(job.model, folder / "simplified", default_cache(), show)
    job = _call_roll(job, runner, progress)
    if asks_for_engines(job.planner.nodes):
        job, _ = _check_engines(job, progress)
    file = job.planner.file
    if file is not None:  # one of other machines would mislead the search
        check_agents(job.cluster, job.model, file, identities(job.planner.nodes, job.roll.welcomes))
    remembering = job.planner.remembering(job.roll.welcomes, progress.say)
    job = replace(job, planner=remembering)
    if job.planner.begins_with:
        progress.say(job.planner.begins_with)
    job = _measure_links(job, runner, folder / "links", progress)
    job, plan = _plan_for_present(job, progress)
    if any(node.memory is None for node in job.planner.nodes):
        job, plan = _within_reported(job, plan, progress)
    cluster = job.cluster
    certified(plan, cluster.model)
    subnets_folder = _subnets_folder(job, folder)
    show = _counting(progress, "cutting subnets")
    subnets = cut_subnets(job.planner.planned, plan, subnets_folder, show)
    check_opsets(plan, subnets, job.planner.facts)
    options = replace(
        run_options(cluster), check_phases=cluster.config.check == "phases", absent=job.absent
    )
    if options.recovery.enabled:
        replan = Replanner(replace(job.planner, hurries=False), folder, progress.say)
        stack.callback(replan.close)
        adapt = options.recovery.adapt and job.saved is None
        recovery = options.recovery.model_copy(update={"adapt": adapt})
        options = replace(
            options,
            replan=replan,
            learn=replan.learn,
            searches_on=plan.strategy == HURRIED,
            corrects_in_a_hurry=cluster.config.strategy == Auto.name,
            recovery=recovery,
        )
        if recovery.rebalance == "ask":
            options = replace(options, consent=stack.enter_context(hearing_consent()))
    return _Ready(runner, job.nodes, plan, subnets, options, full=job.full, choice=job.choice)


def _call_roll(job: _Job, runner: Runner, progress: ProgressDisplay) -> _Job:
    """Return the job with the roll of its nodes, and with the boards' own measurements.

    A run that begins with the available nodes does without those of other machines that do not
    answer, after saying why. Raises `BadInputError` if no node can be used, however long it waits.
    """
    wanted: dict[str, ThreadShare] = {}
    if job.saved is None and job.planner.file is None:
        wanted = figures_wanted(job.planner.nodes, {node.name for node in job.nodes})
    timeout_s = job.cluster.config.run.connect_timeout_s
    is_patient = job.begins_with_available or wanted
    roll = runner.call_roll(job.nodes, timeout_s, timeout_s if is_patient else REMOTE_S, wanted)
    facts = with_boards(job.planner.facts, roll, job.planner.nodes)
    for sentence in described_boards(roll, facts.threads):
        progress.say(sentence)
    job = _knowing(replace(job, roll=roll), facts)
    if not job.begins_with_available:  # the run waits for all
        return job
    elsewhere = {node.name for node in job.nodes if node.address is not None}
    absent = {name: str(error) for name, error in roll.absent.items() if name in elsewhere}
    if len(roll.hopeless) == len(job.nodes):
        raise BadInputError("; ".join(absent.values()))
    return _without(replace(job, hopeless=roll.hopeless), absent, progress)


def _measure_links(job: _Job, runner: Runner, folder: Path, progress: ProgressDisplay) -> _Job:
    """Return the job with the rates of links between its machines, if a plan is to be made."""
    planner = job.planner
    if job.saved is None and planner.file is None and planner.store is not None:
        bench = Bench(runner, job.present, folder, bench_options(job.cluster), progress)
        who = identities(planner.nodes, job.roll.welcomes)
        again = planner.searches_again
        measure_machines(bench, planner.nodes, who, planner.store, again=again)
        planner = replace(planner, links=kept_links(who, planner.store))
    return replace(job, planner=planner)


def _without(job: _Job, absent: Mapping[str, str], progress: ProgressDisplay) -> _Job:
    for name, sentence in absent.items():
        progress.say(sentence, "warning", (name,))
    roll = job.roll.of(job.roll.greeted.keys() - absent.keys())
    return replace(job, absent={**job.absent, **absent}, roll=roll)


def _check_engines(job: _Job, progress: ProgressDisplay) -> tuple[_Job, dict[str, EngineChoice]]:
    """Say and return what the nodes that answer compute with; the job counts on their memory.

    If a node lacks what it is asked for, a run that begins with the available nodes leaves it out.
    Otherwise, or if none is left, this raises `BadInputError`.
    """
    cluster, welcomes = job.cluster, job.roll.welcomes
    for name, welcome in welcomes.items():
        offered = (offer for offer in welcome.engines if not offer.missing)
        progress.say(f"node {name} has {'; '.join(described_offers(offered))}")
    facts, reasons = job.planner.facts, job.planner.reasons
    found, lacking = split_by_engine(cluster, welcomes, facts, reasons)
    if lacking and (not found or not job.begins_with_available):
        raise next(iter(lacking.values()))
    job = replace(job, hopeless=job.hopeless | lacking.keys())
    job = _without(job, {name: str(error) for name, error in lacking.items()}, progress)
    silent = [node.name for node in cluster.config.nodes if node.name not in welcomes]
    text = described_choices(found, reasons)
    progress.say(f"engines: {text or 'no node has answered'}")
    if found and silent:
        progress.say(f"engines of {', '.join(silent)} are unknown: no answer")
    return _knowing(job, with_declared_memory(facts, found, welcomes)), found


def _knowing(job: _Job, facts: Facts) -> _Job:
    return replace(job, planner=replace(job.planner, facts=facts))


def _plan_for_present(job: _Job, progress: ProgressDisplay) -> tuple[_Job, Plan]:
    """Return a plan for the nodes that can be used; if there is none, one for all nodes.

    With the latter, the run waits for the absent nodes before it begins, except for those that are
    absent permanently. Raises `BadInputError` if there is no plan then either.
    """
    if not job.absent:
        return _plan(job, progress)
    standby = {node.name for node in job.cluster.config.nodes if node.standby}
    present = [node.name for node in job.present]
    active = [name for name in present if name not in standby]
    why = "no other node answers"
    for nodes in [active, present] if active != present else [active]:
        if not nodes:
            continue
        progress.say(f"planning for {', '.join(nodes)}")
        try:
            return _plan(job, progress, nodes)
        except BadInputError as error:
            why = str(error)
    awaited = [name for name in job.absent if name not in job.hopeless]
    if not awaited:
        raise BadInputError(f"{'; '.join(job.absent.values())}; without them: {why}")
    progress.say(f"the run has to wait for {', '.join(awaited)}: {why}")
    usable = [node.name for node in job.nodes if node.name not in job.hopeless | standby]
    return _plan(job, progress, usable if job.hopeless else None)


def _within_reported(job: _Job, plan: Plan, progress: ProgressDisplay) -> tuple[_Job, Plan]:
    """Return the plan, made again if a node without `memory` has less than it needs, and the job
    whose cluster has the limits that its agents report.

    Raises `BadInputError` if no plan fits, unless a node is absent that may come.
    """
    request, facts = job.request, job.planner.facts
    limits = reported_limits(job.planner.nodes, job.roll.welcomes)
    if not limits:
        return job, plan
    full = too_full(limits)
    for name, sentence in full.items():
        progress.say(sentence, "warning", (name,))
    limited = replace(_knowing(job, within_limits(facts, limits)), full=full)
    known = f"available to nodes without `memory`, as their agents report: {described(limits)}"
    over = exceeded(plan, limits)
    if not over:
        progress.say(known)
        return limited, plan
    need = megabytes(plan.memory[over[0]].total_bytes)
    progress.say(f"{known}; the plan needs {need} on {over[0]}, so another one is made")
    if job.choice is not None:
        limited = replace(limited, planner=replace(limited.planner, batch=None))
    again = replace(limited, request=replace(request, save=None))
    try:
        again, plan = _plan_for_present(again, progress)
    except BadInputError as error:
        raise type(error)(
            f"{error}. {', '.join(limits)}: without `memory` in cluster.yaml, a node may hold what "
            "its agent reports as available; write `memory` to set another limit"
        ) from error
    plan = replace(plan, explanation=f"{plan.explanation}; {known}")
    if request.save is not None:
        _save(request.save, plan, again.planner, progress)
    return replace(again, request=request), plan


def _restore(results: Results, journal: Journal, where: str, progress: ProgressDisplay) -> None:
    """Restore the results in the journal, and check that the disk has room for the others."""
    results.restore(_counting(progress, "reading the journal"))
    check_room(journal, where)
    progress.say(
        f"journal {journal.folder}: {results.restored} results are saved, {len(results.frames)} "
        "frames are left; if this run is interrupted, --resume goes on with it" + _removed(results)
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
    show = _counting(progress, "comparing with the whole model")
    agreements = compare_all(model, results, folder, show, cluster.config.tolerance)
    return CompletedRun(
        frames=len(results.inputs),
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


def _subnets_folder(job: _Job, folder: Path) -> Path:
    """Return where subnets are cut: in the plan's folder if it is or will be saved, or `folder`."""
    saved = job.saved
    if job.request.save is not None:
        return job.request.save / SUBNETS
    if saved is not None and os.access(saved.path.parent, os.W_OK):
        return saved.path.parent / SUBNETS
    return folder / SUBNETS


def load_target(request: Request) -> LoadedTarget:
    """Read what `request` names; raises `BadInputError`."""
    check_trace_file(request.trace)
    check_report_file(request.report)
    target, saved = request.target, None
    if is_plan(target):
        folder = target if target.is_dir() else target.parent
        saved = read_plan(folder)
        target = folder / CLUSTER
        if request.strategy is not None:
            raise BadInputError(
                f"--strategy {request.strategy}: {str(folder)!r} is a plan, whose layers have "
                "their nodes already; give its cluster.yaml to search again"
            )
        if request.batch is not None:
            raise BadInputError(
                f"--batch {request.batch}: {str(folder)!r} is a plan, which is for its own number "
                "of frames at once; give its cluster.yaml to search again"
            )
    elif target.is_dir() or (not target.exists() and (target.parent / FRONT).exists()):
        target = target / CLUSTER
        if not target.exists():
            raise no_target(request.target)
    cluster = load_cluster(target)
    changes: dict[str, Any] = {
        "frames": request.frames,
        "strategy": request.strategy,
        "seed": request.seed,
        "batch": request.batch and parsed_option("--batch", parse_batch, request.batch),
        "max_latency": request.max_latency
        and parsed_option("--max-latency", parse_duration, request.max_latency),
        "verify": request.verify,
        "tolerance": request.tolerance,
        "journal": request.journal and _journal(cluster, request.journal),
        "run": _given_run(cluster, request),
        "recovery": request.rebalance
        and cluster.config.recovery.model_copy(update={"rebalance": request.rebalance}),
    }
    if request.inputs:
        changes["input"] = cluster.config.input.model_copy(update=_given_input(request.inputs))
        cluster = cluster.changed(truth=None)  # it belongs to the inputs of cluster.yaml
    given = {key: value for key, value in changes.items() if value is not None}
    return LoadedTarget(cluster.changed(**given), saved)


def _given_run(cluster: Cluster, request: Request) -> RunConfig | None:
    given = {"order": request.order, "start": request.start}
    update = {key: value for key, value in given.items() if value is not None}
    return cluster.config.run.model_copy(update=update) if update else None


def _given_input(inputs: Sequence[str]) -> dict[str, Any]:
    """The keys `files` and `source` that `--input` gives, with paths from the current folder."""
    if len(inputs) == 1 and is_source(inputs[0]):
        given = _absolute(inputs[0]) if is_video_file(inputs[0]) else inputs[0]
        return {"files": (), "source": parsed_source(given)}
    files = (name if name == RANDOM or is_source(name) else _absolute(name) for name in inputs)
    return {"files": tuple(files), "source": None}


def _absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute())


def _journal(cluster: Cluster, folder: Path) -> JournalConfig:
    """The journal in another folder, with the bound of `cluster.yaml`."""
    given = cluster.config.journal
    path = str(Path(os.path.expanduser(folder)).absolute())
    return JournalConfig(folder=path, keep=None if given is None else given.keep)


def _plan(
    job: _Job, progress: ProgressDisplay, nodes: Collection[str] | None = None
) -> tuple[_Job, Plan]:
    """Return a plan for the nodes called `nodes`, or for all that do not stand by, and the job with
    the number of frames per batch that was chosen for it."""
    if job.saved is not None and job.saved.fits(nodes):
        plan = job.planner.saved(job.saved)
        check_latency(job.cluster, plan, fill_s(job.cluster, is_pushed=job.is_pushed))
    else:
        planner, plan, choice = job.planner.with_batch(progress, nodes, is_pushed=job.is_pushed)
        job = replace(job, planner=planner, choice=choice)
    progress.say(
        f"planned ({plan.strategy}): {counted(len(plan.phases), 'phase')}, "
        f"{counted(len(plan.channels), 'channel')}, "
        f"proved free of deadlock; {1 / plan.frame_s:.2f} frames/s predicted from "
        + _source(job, plan)
    )
    if job.request.save is not None:
        _save(job.request.save, plan, job.planner, progress)
    return job, plan


def _source(job: _Job, plan: Plan) -> str:
    """Return the origin of a plan's times, in words."""
    if plan.times == "measured":
        return "measured times"
    used = {phase.device for phase in plan.phases}
    known = used <= job.planner.facts.figures.keys()
    return "what the boards have measured of themselves" if known else "estimates"


def _save(folder: Path, plan: Plan, planner: Planner, progress: ProgressDisplay) -> None:
    save_plan(folder, plan, planner.cluster.changed(batch=plan.batch))
    show = _counting(progress, "cutting subnets")
    cut_subnets(planner.planned, plan, folder / SUBNETS, show)
    progress.say(f"saved in {folder}; launch {folder} runs it")


def _counting(progress: ProgressDisplay, stage: str) -> Callable[[int, int], None]:
    return lambda done, total: progress.update(stage, done, total)


def _show(progress: ProgressDisplay, update: Update) -> None:
    if not update.stage:
        progress.say(update.text, update.level, update.nodes)
    elif update.stage == "uploading":  # it counts bytes
        progress.update("uploading (kB)", update.done // 1000, (update.total or 0) // 1000)
    else:
        progress.update(update.stage, update.done, update.total, update.text)
