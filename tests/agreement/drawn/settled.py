"""Decide by the launcher's own methods about results that its strict rules leave in doubt."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cnn.reading.half_precision import write_rounded
from launcher.plan.subnet_files import cut_subnets
from launcher.results.comparison.agreement import FirstResults
from launcher.results.comparison.doubts import Doubt, settle
from launcher.results.comparison.replay import Replay
from launcher.results.comparison.tape import Tape
from launcher.results.comparison.tolerance import (
    Numbers,
    Outputs,
    WorstOutput,
    strict,
    within_movement,
)
from launcher.results.networks import network_numbers
from launcher.results.simplified import _SCALES, _difference, _limit
from nodes.executors.replay import run
from partition.devices import Device
from partition.planner import make_plan
from tests.agreement.drawn.case import Case, Division, Found
from tests.agreement.drawn.engine import Arrays, Graph


def simplified(case: Case, whole: Path, made: Sequence[Outputs]) -> Found:
    """Judge the simplified network in one piece, whose results are `made`.

    The launcher compares a network that it reads with its file in this way, and also examines it so
    before a run that it does not compare.
    """
    numbers, rule = network_numbers(case.model), "precision"
    original: Path | None = None
    for frame, found, wanted in zip(case.frames, made, case.wanted, strict=True):
        verdict = strict(found, wanted, numbers)
        if not verdict.agrees:
            if original is None:
                original = case.model.write_original(case.folder)
            variants = _variants(original, frame, numbers)
            verdict = within_movement(found, wanted, variants, numbers, "replay")
        if not verdict.agrees:
            return Found(False, verdict.rule, f"simplified: {verdict}")
        rule = verdict.rule if verdict.rule != "precision" else rule
    if _is_refused(case, zip(made, case.wanted, strict=True)):
        original = original or case.model.write_original(case.folder)
        both = Graph(whole, is_fused=False), Graph(original, is_fused=False)
        if _is_refused(case, (tuple(graph.run(x) for graph in both) for x in case.frames)):
            return Found(False, rule, "a run that is not compared would be refused")
    return Found(True, f"simplified: {rule}")


def _is_refused(case: Case, pairs: Iterable[tuple[Outputs, ...]]) -> bool:
    """Whether `launcher.results.simplified` would refuse it, by what it and its file compute."""
    limit = _limit(case.model.network)
    errors = [
        max(_difference(found[x], wanted[x]) for x in wanted)
        for found, wanted in itertools.islice(pairs, len(_SCALES))
    ]
    return sum(not error <= limit for error in errors) > len(_SCALES) // 2


def _variants(original: Path, frame: Arrays, numbers: Numbers) -> list[Outputs]:
    """The original with nothing fused; one of half precision also with every tensor rounded."""
    graphs = [original]
    if numbers.precision == "half":
        graphs.append(write_rounded(original, original.parent / "rounded"))
    return [Graph(graph, is_fused=False).run(frame) for graph in graphs]


class TapeHere(Tape):
    """Computes its steps in this process with the agents' level of fusion.

    It does not go through a prepared file, which would need a process for each.
    """

    def _carry_out(self, job: Path, on_done: Callable[[int], None]) -> None:
        data = json.loads(job.read_text("utf-8"))
        for step in data["steps"]:
            step["level"] = "all" if step["level"] == "agent" else step["level"]
        with contextlib.redirect_stdout(io.StringIO()):
            run(data)


def doubts(
    case: Case,
    division: Division,
    doubtful: Mapping[int, WorstOutput],
    results: Mapping[int, Outputs],
) -> Found:
    """Return results of subnets, by the frame's number, that differ by the strict rules."""
    network = case.model.network
    numbers = network_numbers(case.model)
    devices = [Device(name) for name in sorted(set(division.assignment.values()))]
    plan = make_plan(
        division.model.network,
        case.model.digest,
        devices,
        division.assignment,
        strategy="drawn",
        explanation="",
        rewrites=division.rewrites,
    )
    with tempfile.TemporaryDirectory(dir=case.folder) as name:
        folder = Path(name)
        subnets = cut_subnets(case.model, plan, folder / "subnets", lambda _done, _all: None)
        first = FirstResults(folder / "first", numbers)
        for number, outputs in results.items():
            first.add(number, outputs)
        doubt = Doubt(
            case.model.write_original(folder / "original"),
            {name: name for name in network.inputs},
            {name: name for name in network.outputs},
            numbers,
            doubtful,
        )
        replay = Replay(case.model, plan, subnets, numbers, folder / "replay")
        agreed = settle(
            doubt,
            [replay],
            first,
            lambda number: {name: case.frames[number][name] for name in network.inputs},
            folder / "doubts",
            rounds_alike=True,
            tape=TapeHere,
        )
    if agreed.agrees:
        return Found(True, agreed.rule)
    begins = agreed.begins.sentence if agreed.begins else ""
    words = f"error {agreed.max_relative_error:.1e} of {agreed.worst_output!r} on frame "
    words += f"{agreed.worst_input} by rule {agreed.rule}; {begins}; on {division}"
    return Found(False, agreed.rule, words)
