"""Prepares a run: greets its nodes, plans, and cuts the subnets.

Agents are greeted once before the search, which uses what they report.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cnn.errors import CnnError
from ga.auto import HURRIED, Auto
from launcher.config.load import Cluster
from launcher.core.roll import Absence, Question, Roll
from launcher.errors import BadInputError, RunFailedError, UnreachableError
from launcher.files import with_advice
from launcher.plan.batch_size import BatchChoice, check_latency, fill_s
from launcher.plan.boards import check_opsets, doubtful, figures_wanted, with_boards
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
    SUBNETS,
    SavedPlan,
    certified,
    check_save_folder,
    save_plan,
)
from launcher.plan.planner import Planner, read_planner
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
from launcher.results.simplified import check_simplified, default_cache
from launcher.run.consent import hearing_consent
from launcher.run.feed import Feed
from launcher.run.request import Request
from launcher.run.runtime import (
    REMOTE_S,
    Node,
    OnUpdate,
    Runner,
    RunOptions,
    RunResult,
    SubnetFiles,
)
from launcher.streaming.target import LoadedTarget, load_target
from nodes.core.engines import described as described_offers
from nodes.protocol.messages import EngineChoice
from partition.errors import PartitionError
from partition.plan import Plan

if TYPE_CHECKING:
    from cnn.model import Model


@dataclass(frozen=True)
class CheckedRequest:
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
class PreparedRun:
    """A plan, its subnets on disk, and how to run it. Nodes that are `full` are reported as
    absent."""

    runner: Runner
    nodes: tuple[Node, ...]
    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    options: RunOptions
    full: Mapping[str, str] = field(default_factory=dict)
    choice: BatchChoice | None = None

    def stream(self, feeds: tuple[Feed, ...], on_update: OnUpdate) -> RunResult:
        """Stream frames until they end (`launcher.streaming.live_run.Stream`)."""
        result = self.runner(self.plan, self.nodes, self.subnets, feeds, on_update, self.options)
        if len(feeds) == 1:  # times are of runs of one stream
            result = feeds[0].in_frames(result)
        full = (Absence(node, why) for node, why in self.full.items())
        return replace(result, absences=(*result.absences, *full))


_OTHER_DISK = "name a folder on another disk: by TMPDIR, or by --save for a plan that is saved"
"""The remedy where subnets do not fit; see `_subnets_folder`."""


@contextmanager
def in_sentences() -> Iterator[None]:
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


def read_job(
    request: Request,
    progress: ProgressDisplay,
    loaded: LoadedTarget | None,
    *,
    is_pushed: bool = False,
) -> CheckedRequest:
    """Read and check what a request names; frames are pushed by others if it `is_pushed`.

    Raises `LauncherError`.
    """
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
    return CheckedRequest(
        request,
        planner,
        saved,
        () if request.plan_only else nodes_of(cluster, planner.facts),
        is_pushed=is_pushed or cluster.config.has_source,
    )


def _may_hurry(request: Request, cluster: Cluster, saved: SavedPlan | None) -> bool:
    """Whether a first plan may be made in a hurry, because the search can continue in the run."""
    is_for_now = not (request.plan_only or request.save or saved) and request.search != "again"
    return is_for_now and cluster.config.recovery.enabled and cluster.config.recovery.adapt


def prepared(
    job: CheckedRequest,
    runner: Runner,
    folder: Path,
    stack: ExitStack,
    progress: ProgressDisplay,
    *,
    checks: bool,
) -> PreparedRun:
    """Plan what `job` asks for; with `checks`, the simplified network is compared with the file
    first, while agents start."""
    if checks:
        show = counting(progress, "comparing the simplified network")
        check_simplified(job.model, folder / "simplified", default_cache(), show)
    job = _call_roll(job, runner, progress)
    if asks_for_engines(job.planner.nodes):
        job, _ = check_engines(job, progress)
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
    show = counting(progress, "cutting subnets")
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
    return PreparedRun(runner, job.nodes, plan, subnets, options, full=job.full, choice=job.choice)


def _call_roll(job: CheckedRequest, runner: Runner, progress: ProgressDisplay) -> CheckedRequest:
    """Return the job with the roll of its nodes, and with the boards' own measurements.

    A run that begins with the available nodes does without those of other machines that do not
    answer, after saying why. Raises `BadInputError` if no node can be used, however long it waits.
    """
    wanted: dict[str, Question] = {}
    if job.saved is None and job.planner.file is None:
        names, again = {node.name for node in job.nodes}, job.planner.searches_again
        wanted = figures_wanted(job.planner.nodes, names, again=again)
    timeout_s = job.cluster.config.run.connect_timeout_s
    is_patient = job.begins_with_available or wanted
    remote_s = timeout_s if is_patient else REMOTE_S
    show = counting(progress, "boards measure themselves")
    roll = runner.call_roll(job.nodes, timeout_s, remote_s, wanted, show)
    facts = with_boards(job.planner.facts, roll, job.planner.nodes)
    for sentence in described_boards(roll, facts.threads, _stated(job)):
        progress.say(sentence)
    job = _knowing(replace(job, roll=roll), facts)
    if not job.begins_with_available:  # the run waits for all
        return job
    elsewhere = {node.name for node in job.nodes if node.address is not None}
    absent = {name: str(error) for name, error in roll.absent.items() if name in elsewhere}
    if len(roll.hopeless) == len(job.nodes):
        raise BadInputError("; ".join(absent.values()))
    return _without(replace(job, hopeless=roll.hopeless), absent, progress)


def _measure_links(
    job: CheckedRequest, runner: Runner, folder: Path, progress: ProgressDisplay
) -> CheckedRequest:
    """Return the job with the rates of links between its machines, if a plan is to be made.

    Links of boards that still measure themselves are left out: one measurement would disturb the
    other. A run that begins with the available nodes does without those that do not answer any
    more; otherwise this raises `UnreachableError`.
    """
    planner = job.planner
    if job.saved is None and planner.file is None and planner.store is not None:
        bench = Bench(runner, job.present, folder, bench_options(job.cluster.config.run), progress)
        who = identities(planner.nodes, job.roll.welcomes)
        again = planner.searches_again
        busy = job.roll.still_measuring
        free = [node for node in planner.nodes if node.name not in busy]
        try:
            found = measure_machines(bench, free, who, planner.store, again=again)
        except UnreachableError as error:
            if not job.begins_with_available:
                raise
            job = _without(job, error.absent, progress)
            return _measure_links(job, runner, folder, progress)
        known = {link.ends: link for link in (*kept_links(who, planner.store), *found)}
        planner = replace(planner, links=tuple(known.values()))
    return replace(job, planner=planner)


def _without(
    job: CheckedRequest, absent: Mapping[str, str], progress: ProgressDisplay
) -> CheckedRequest:
    for name, sentence in absent.items():
        progress.say(sentence, "warning", (name,))
    roll = job.roll.of(job.roll.greeted.keys() - absent.keys())
    return replace(job, absent={**job.absent, **absent}, roll=roll)


def check_engines(
    job: CheckedRequest, progress: ProgressDisplay
) -> tuple[CheckedRequest, dict[str, EngineChoice]]:
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


def _knowing(job: CheckedRequest, facts: Facts) -> CheckedRequest:
    return replace(job, planner=replace(job.planner, facts=facts))


def _plan_for_present(
    job: CheckedRequest, progress: ProgressDisplay
) -> tuple[CheckedRequest, Plan]:
    """Return a plan for the nodes that can be used; if there is none, one for all nodes.

    With the latter, the run waits for the absent nodes before it begins, except for those that are
    absent permanently. Raises `BadInputError` if there is no plan then either.
    """
    if not job.absent:
        return planned(job, progress)
    standby = {node.name for node in job.cluster.config.nodes if node.standby}
    present = [node.name for node in job.present]
    active = [name for name in present if name not in standby]
    why = "no other node answers"
    for nodes in [active, present] if active != present else [active]:
        if not nodes:
            continue
        progress.say(f"planning for {', '.join(nodes)}")
        try:
            return planned(job, progress, nodes)
        except BadInputError as error:
            why = str(error)
    awaited = [name for name in job.absent if name not in job.hopeless]
    if not awaited:
        raise BadInputError(f"{'; '.join(job.absent.values())}; without them: {why}")
    progress.say(f"the run has to wait for {', '.join(awaited)}: {why}")
    usable = [node.name for node in job.nodes if node.name not in job.hopeless | standby]
    return planned(job, progress, usable if job.hopeless else None)


def _within_reported(
    job: CheckedRequest, plan: Plan, progress: ProgressDisplay
) -> tuple[CheckedRequest, Plan]:
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


def _subnets_folder(job: CheckedRequest, folder: Path) -> Path:
    """Return where subnets are cut: in the plan's folder if it is or will be saved, or `folder`."""
    saved = job.saved
    if job.request.save is not None:
        return job.request.save / SUBNETS
    if saved is not None and os.access(saved.path.parent, os.W_OK):
        return saved.path.parent / SUBNETS
    return folder / SUBNETS


def planned(
    job: CheckedRequest, progress: ProgressDisplay, nodes: Collection[str] | None = None
) -> tuple[CheckedRequest, Plan]:
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
    for sentence in doubts(job, plan):
        progress.say(sentence, "warning")
    if job.request.save is not None:
        _save(job.request.save, plan, job.planner, progress)
    return job, plan


def _source(job: CheckedRequest, plan: Plan) -> str:
    """Return the origin of a plan's times, in words."""
    if plan.times == "measured":
        return "measured times"
    used = {phase.device for phase in plan.phases}
    stated = used & _stated(job).keys()
    known = (used & job.planner.facts.figures.keys()) - stated
    if not known and not stated:
        return "estimates"
    if known == used:
        return "what the boards have measured of themselves"
    guessed = used - known - stated
    parts = ["what boards have measured"] if known else []
    parts += [f"the macs_per_s of {', '.join(sorted(stated))}"] if stated else []
    parts += [f"estimates of {', '.join(sorted(guessed))}"] if guessed else []
    return ", and ".join(parts)


def doubts(job: CheckedRequest, plan: Plan) -> list[str]:
    """Return a sentence for each speed in cluster.yaml that its board's measurement contradicts."""
    used = {phase.device for phase in plan.phases}
    return doubtful(_stated(job), job.planner.facts.figures, used)


def _stated(job: CheckedRequest) -> dict[str, float]:
    """Return the speeds that cluster.yaml states, in multiply-accumulates per second."""
    nodes = job.planner.nodes
    return {node.name: node.macs_per_s for node in nodes if node.macs_per_s is not None}


def _save(folder: Path, plan: Plan, planner: Planner, progress: ProgressDisplay) -> None:
    save_plan(folder, plan, planner.cluster.changed(batch=plan.batch))
    show = counting(progress, "cutting subnets")
    cut_subnets(planner.planned, plan, folder / SUBNETS, show)
    progress.say(f"saved in {folder}; launch {folder} runs it")


def counting(progress: ProgressDisplay, stage: str) -> Callable[[int, int], None]:
    """Return a function that shows (done, of all) in a stage."""
    return lambda done, total: progress.update(stage, done, total)
