"""Plans networks for three devices, cuts them, and runs them phase by phase in one process.

This takes a small part of the time of a launch, and finds faults in planning, rewriting, cutting
and comparing: the agents' executor prepares and loads the subnets, and results are compared by the
rules of a launch. Searches are short and layers' times are estimated, because correct results
matter more here than good plans.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.zoo.frames import frames
from benchmarks.zoo.models import settings
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, refusal
from benchmarks.zoo.registry import Entry
from cnn.model import Model
from cnn.rewrite.rewrites import Copies, original_name
from ga.hybrid.strategy import Hybrid, HybridEffort
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError, LauncherError
from launcher.plan.planner import Planner, configured
from launcher.plan.settings import read_model
from launcher.plan.subnet_files import cut_subnets
from launcher.results.comparison.agreement import Agreement, FirstResults, agreement, compare, worse
from launcher.results.comparison.doubts import Doubt, settle
from launcher.results.comparison.replay import INPUT, Replay
from launcher.results.comparison.tape import Tape
from launcher.results.networks import network_numbers
from launcher.results.whole import reference_results
from launcher.run.runtime import Array, Frame, SubnetFiles
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.registry import open_executor
from partition.errors import PartitionError
from partition.plan import Plan, PlannedPhase
from partition.planner import plan_solution
from partition.strategies.base import Strategy

NODES = 3
_ELSEWHERE = "tcp://192.0.2.{}:5500"
"""Addresses that no machine has, so that the devices do not share this one's cores."""

_QUICK = {"vertical": {"budget": 0.05}}
_QUICK_HYBRID = HybridEffort(chains=16, work=2e6, least_steps=60, finalists=3, refinements=1)


def try_strategies(entry: Entry, strategies: Sequence[str], folder: Path) -> Iterator[Outcome]:
    """What becomes of the network under each strategy; `folder` is for passing files."""
    trials = [Trial(entry.name, "in-process", strategy) for strategy in strategies]
    try:
        cluster = _cluster(entry, folder)
        model = read_model(cluster)
    except BadInputError as error:
        yield from (Outcome(trial, refusal(entry, str(error))) for trial in trials)
        return
    shown = frames(model.network, with_state=True)
    original = model.write_original(folder / "original")
    wanted = list(
        reference_results(
            original, len(shown), shown.__getitem__, folder / "reference", lambda _: None
        )
    )
    for trial in trials:
        began = time.monotonic()
        own = folder / trial.strategy
        outcome = Outcome(trial, "", layers=len(model.network.layers))
        try:
            plan = _plan(cluster, model, trial.strategy)
            outcome = replace(
                outcome, phases=len(plan.phases), nodes=len({p.device for p in plan.phases})
            )
            found = _compared(model, plan, shown, wanted, original, own)
        except (LauncherError, PartitionError, ExecutorError) as error:
            yield replace(outcome, what=f"refused: {error}", seconds=time.monotonic() - began)
            continue
        begins = found.begins.sentence if found.begins is not None else ""
        yield replace(
            outcome,
            what=AGREES if found.agrees else f"differs in {found.worst_output!r}: {begins}",
            seconds=time.monotonic() - began,
            error=found.max_relative_error,
            allowed=found.allowed,
            rule=found.rule,
            memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )


def _cluster(entry: Entry, folder: Path) -> Cluster:
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [
        {"name": f"n{number}", "address": _ELSEWHERE.format(number + 1)} for number in range(NODES)
    ]
    file = folder / "cluster.yaml"
    file.write_text(json.dumps({"model": settings(entry), "nodes": nodes, "ga": _QUICK}))
    return load_cluster(file)


def _plan(cluster: Cluster, model: Model, name: str) -> Plan:
    problem = Planner(cluster, model).problem()
    strategy: Strategy = configured(cluster.config.ga, name)
    if isinstance(strategy, Hybrid):
        strategy = Hybrid(_QUICK_HYBRID)
    return plan_solution(problem, strategy.solve(problem), name)


def _compared(
    model: Model,
    plan: Plan,
    shown: Sequence[Frame],
    wanted: Sequence[tuple[int, Mapping[str, Array]]],
    original: Path,
    folder: Path,
) -> Agreement:
    """As a launch compares; and each phase by itself, since few of what random weights compute
    reaches the outputs."""
    network, numbers = model.network, network_numbers(model)
    subnets = cut_subnets(model, plan, folder / "subnets", lambda _done, _all: None)
    first = FirstResults(folder / "first", numbers)
    for number, outputs in _results(model, plan, subnets, shown, folder / "cache"):
        first.add(number, outputs)
    replay = Replay(model, plan, subnets, numbers, folder / "replay")
    compared = compare(first, network.outputs, iter(wanted), numbers)
    found = compared.agreement
    if compared.doubtful:
        doubt = Doubt(
            original,
            {name: name for name in (*network.inputs, *network.state)},
            {name: name for name in network.outputs},
            numbers,
            compared.doubtful,
        )
        place = folder / "doubts"
        settled = settle(doubt, [replay], first, shown.__getitem__, place, rounds_alike=True)
        found = worse(found, settled)
    if found.agrees and (wrong := _wrong_phase(replay, shown, folder / "tape")) is not None:
        return wrong
    return found


def _wrong_phase(replay: Replay, shown: Sequence[Frame], folder: Path) -> Agreement | None:
    """The first phase that computes something else than the whole network does, given the whole
    network's own tensors of the first frame."""
    tape = Tape(folder, [0])
    for name, array in shown[0].items():
        tape.put(0, INPUT, name, array)
    replay.record(tape, chain=False)
    wrong = replay.wrong_step(tape, 0)
    return None if wrong is None else agreement(0, wrong[1], replay.begins_in(tape, 0, *wrong))


def _read(phase: PlannedPhase) -> tuple[str, ...]:
    """All that a phase is given, its state too."""
    return (*phase.inputs, *(tensor.name for tensor, _ in phase.state))


def _results(
    model: Model,
    plan: Plan,
    subnets: Mapping[str, SubnetFiles],
    shown: Sequence[Frame],
    cache: Path,
) -> Iterator[tuple[int, dict[str, Array]]]:
    """What the phases make of each frame, one phase after the other; if there are copies of the
    network, each computes all frames."""
    network = model.rewritten(plan.rewrites).network if plan.rewrites else model.network
    copied = any(isinstance(rewrite, Copies) for rewrite in plan.rewrites)
    read = (*network.inputs, *network.state)
    own = {name: original_name(name) if copied else name for name in read}
    tensors = [{name: frame[of] for name, of in own.items()} for frame in shown]
    executor, options = open_executor("onnxruntime", cache), LoadOptions()
    executor.prepare([subnets[phase.name].graph for phase in plan.phases], options)
    waiting = list(plan.phases)
    while waiting:
        ready = next(phase for phase in waiting if tensors[0].keys() >= set(phase.inputs))
        waiting.remove(ready)
        subnet = executor.load(subnets[ready.name].graph, options)
        needed = {*network.outputs, *(name for phase in waiting for name in _read(phase))}
        for held in tensors:
            held.update(subnet.run({name: held[name] for name in _read(ready)}))
            for name in held.keys() - needed:
                del held[name]
        subnet.close()
    executor.close()
    names = model.network.outputs
    for start in range(0, len(network.outputs), len(names)):
        for number, held in enumerate(tensors):
            yield (
                number,
                {
                    name: held[made]
                    for name, made in zip(names, network.outputs[start:], strict=False)
                },
            )
