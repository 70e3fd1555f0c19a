"""Measures a cluster's nodes and writes the profile file (`csdf-edge partition profile`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cnn.errors import CnnError
from launcher.commands.options import ProfileOptions
from launcher.commands.problems import load_cluster_for
from launcher.config.units import parse_batch, parsed_option
from launcher.errors import BadInputError, RunFailedError
from launcher.plan.files import read_plan
from launcher.plan.measuring import NewMeasurements, measure
from launcher.plan.profile.file import NodeEntry, ProfileFile, default_cache, write_atomically
from launcher.plan.settings import check_strategy, read_model, summary
from launcher.progress import open_progress
from launcher.quantities import megabytes
from launcher.results.report_text import print_table
from launcher.results.tables import RowTable
from partition.errors import PartitionError
from partition.plan import Plan

DEFAULT = Path("profile.json")

_EXPLAINED = 70
"""Characters of a plan's explanation in a line."""


@dataclass(frozen=True)
class ProfileOutcome:
    """A profile that was written to `path`, a plan made with it, and the new measurements."""

    profile: ProfileFile
    plan: Plan
    taken: NewMeasurements
    path: Path

    def as_json(self) -> dict[str, Any]:
        """Return the profile, and what was measured for it."""
        return {
            "profile": str(self.path),
            "measured_now": vars(self.taken),
            "strategy": self.plan.strategy,
            "period_s": self.plan.period_s,
            "times": self.plan.times,
            **self.profile.model_dump(mode="json"),
        }

    def print(self) -> None:
        """Print a table of nodes, the links, and the profile's path."""
        print_table(self._table(), self._lines())

    def _table(self) -> RowTable:
        heads = ("node", "engine", "machine", "layers alone", "a copy", "subnets", "per message",
                 "per MB")  # fmt: skip
        rows = [
            (
                name,
                entry.identity.engine,
                entry.identity.machine,
                f"{sum(entry.measured.layer_s.values()) * 1e3:.2f} ms",
                "no room" if not entry.measured.batches else _frame_s(entry),
                str(len(entry.measured.subnets)),
                f"{entry.measured.message_s * 1e6:.0f} µs",
                f"{entry.measured.byte_s * 1e9:.2f} ms",
            )
            for name, entry in self.profile.nodes.items()
        ]
        return RowTable(heads, rows, ("engine", "machine"))

    def _lines(self) -> list[str]:
        lines = [
            f"{' - '.join(link.ends)}: latency {link.latency_s * 1e6:.0f} µs, "
            + (f"{megabytes(link.bytes_per_s)}/s" if link.bytes_per_s else "too fast to measure")
            for link in self.profile.links
        ]
        taken = self.taken
        if any(vars(taken).values()):
            now = ", ".join(f"{number} {what}" for what, number in vars(taken).items())
            lines.append(f"measured now: {now}; the rest was known")
        else:
            lines.append("everything was known from earlier runs; --again measures it again")
        return [
            *lines,
            *self._plans(),
            *(
                f"engine of {name}: {entry.engines}"
                for name, entry in self.profile.nodes.items()
                if entry.engines is not None
            ),
            f"energy: {self.profile.energy}",
            f"with these times {self.plan.strategy} finds a period of "
            f"{self.plan.period_s * 1e3:.2f} ms ({1 / self.plan.period_s:.2f} frames/s)",
            f"written to {self.path}; csdf-edge partition solve and launch read it with --profile",
        ]

    def _plans(self) -> list[str]:
        choice = self.profile.choice
        if choice is None or len(choice.plans) == 1:
            return []
        return [
            "plans whose subnets were measured, the chosen one first:",
            *(
                f"  {1 / plan.period_s:.2f} frames/s, {1 / plan.before_s:.2f} expected before, "
                f"{plan.phases} phases, at most {megabytes(plan.fullest_bytes)} on a node: "
                + _short(plan.explanation)
                for plan in choice.plans
            ),
        ]


def _frame_s(entry: NodeEntry) -> str:
    """Return the time of one more frame of a batch on a whole copy of the network, as text."""
    line = entry.measured.profile().copy
    return "unclear" if line is None else f"{line.frame_s * 1e3:.2f} ms"


def _short(text: str) -> str:
    return text if len(text) <= _EXPLAINED else text[: _EXPLAINED - 1] + "…"


def perform(options: ProfileOptions) -> ProfileOutcome:
    """Measure the nodes and write the profile; raises `LauncherError`."""
    cluster = load_cluster_for(options.model, options.cluster)
    path = options.output
    if path is None:
        named = cluster.config.profile
        path = DEFAULT if named is None else cluster.path(named)
    if path.is_dir():
        raise BadInputError(f"--output {path}: is a folder; name a file")
    cluster = cluster.changed(profile=None)
    check_strategy(cluster)
    if options.batch is not None:
        cluster = cluster.changed(batch=parsed_option("--batch", parse_batch, options.batch))
    saved = None if options.plan is None else read_plan(options.plan)
    with open_progress() as progress:
        progress.say(f"reading {cluster.model}")
        model = read_model(cluster)
        progress.say(summary(model.network, model.filled_seed))
        try:
            found, plan, taken = measure(
                cluster,
                model,
                saved,
                progress,
                default_cache(),
                again=options.again,
                alike=options.alike,
            )
        except (CnnError, PartitionError) as error:
            raise RunFailedError(str(error)) from error
    write_atomically(path, found)
    return ProfileOutcome(found, plan, taken, path)
