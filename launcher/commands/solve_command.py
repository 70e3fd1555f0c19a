"""`csdf-edge partition solve`: searches one plan, prints its figures and saves it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from launcher.commands.options import SolveOptions
from launcher.commands.problems import (
    DeviceOptions,
    check_strategy_option,
    cluster_problem,
    equal_problem,
    load_cluster_for,
    read_network,
)
from launcher.commands.solve import Solved, solve
from launcher.errors import BadInputError
from launcher.plan.files import SUBNETS
from launcher.plan.planning import check_strategy, foreseen_on, strategy_for
from launcher.plan.saving import check_save_folder, save_plan
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_of, with_profile_option
from launcher.progress import open_progress
from launcher.results.report_text import megabytes, open_console
from partition.measured.profiles import measured_part, with_profile


@dataclass(frozen=True)
class SolveOutcome:
    """A solved problem."""

    solved: Solved

    def as_json(self) -> dict[str, Any]:
        """See `Solved.as_json`."""
        return self.solved.as_json()

    def print(self) -> None:
        """A table of devices and what follows for the whole."""
        open_console().print(Group(_table(self.solved), *map(Text, _lines(self.solved))))


def perform(options: SolveOptions) -> SolveOutcome:
    """Search; raises `BadInputError` for options that contradict each other, too."""
    described = DeviceOptions(options.memory, options.link, options.cache)
    if (options.devices is None) == (options.cluster is None):
        raise BadInputError("give either --devices N, for equal devices, or --cluster FILE")
    if options.cluster is not None and described.are_given:
        raise BadInputError(
            "--memory, --link and --cache describe --devices; a cluster has its own"
        )
    if options.profile is not None and options.cluster is None:
        raise BadInputError("--profile needs --cluster, whose nodes were measured")
    if options.save is not None:
        if options.cluster is None:
            raise BadInputError("--save needs --cluster, whose nodes the plan is for")
        check_save_folder(options.save)
    if options.strategy is not None:
        check_strategy_option("--strategy", options.strategy)
    with open_progress() as progress:
        if options.cluster is None:
            if options.model is None:
                raise BadInputError("name a MODEL to spread over the devices: an ONNX file")
            progress.say(f"reading {options.model}")
            model = read_network(options.model)
            objective = options.objective or "period"
            problem = equal_problem(
                model, options.devices or 1, described, objective, options.seed or 0
            )
            return SolveOutcome(solve(problem, model, options.strategy or "auto", progress))
        cluster = with_profile_option(
            load_cluster_for(options.model, options.cluster), options.profile
        )
        asked = {"strategy": options.strategy, "objective": options.objective, "seed": options.seed}
        given = {key: value for key, value in asked.items() if value is not None}
        cluster = cluster.changed(**given)
        check_strategy(cluster)
        progress.say("reading " + ", ".join(each.path for each in cluster.models))
        config = cluster.config
        model, file, problem = cluster_problem(cluster, config.objective, config.seed)
        find = functools.partial(strategy_for, cluster, file, problem)
        solved = solve(problem, model, config.strategy, progress, find)
        profile = profile_of(file)
        if profile is not None:
            progress.say(measured_part(solved.plan, profile))
            solved = replace(solved, plan=with_profile(solved.plan, profile))
        solved = replace(solved, plan=foreseen_on(cluster, solved.plan, profile))
        if options.save is not None:
            save_plan(options.save, solved.plan, cluster)
            cut_subnets(
                model,
                solved.plan,
                options.save / SUBNETS,
                lambda done, total: progress.update("cutting subnets", done, total),
            )
            progress.say(f"saved in {options.save}; launch {options.save} runs it")
    return SolveOutcome(solved)


def _table(solved: Solved) -> Table:
    table = Table()
    table.add_column("device")
    for column in ("layers", "weights", "memory", "by Eq. 2", "compute/frame"):
        table.add_column(column, justify="right")
    for share in solved.devices:
        table.add_row(
            share.name,
            str(share.layers),
            megabytes(share.weight_bytes),
            megabytes(share.memory_bytes),
            megabytes(share.memory_eq2_bytes),
            f"{share.compute_s * 1e3:.2f} ms",
        )
    return table


def _lines(solved: Solved) -> list[str]:
    plan = solved.plan
    lines = [
        f"period {plan.period_s * 1e3:.2f} ms, latency {plan.latency_s * 1e3:.1f} ms, "
        f"{megabytes(plan.bytes_per_frame)} per frame between devices, {len(plan.phases)} phases; "
        f"times are {plan.times}",
        f"at most {solved.speedup_bound:.2f} times as fast as the fastest device alone "
        f"({len(plan.devices)} devices); the fullest device holds "
        f"{solved.memory_saving_percent:.1f} % less than one alone, "
        f"{solved.memory_eq2_saving_percent:.1f} % by Eq. 2",
        f"proof: {plan.proof}",
        f"strategy: {plan.strategy}: {plan.explanation}",
    ]
    if plan.optimal:
        lines.append("proved optimal")
    elif plan.gap is not None:
        lines.append(f"not proved optimal: at most {plan.gap:.1%} from it")
    return [*lines, f"found in {solved.seconds:.1f} s"]
