"""`csdf-edge partition show`: a saved plan as a picture, alone or on a page with its figures."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from launcher.commands.options import ShowOptions
from launcher.commands.page_file import write_text
from launcher.commands.plan_picture import plan_svg
from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.files import CLUSTER, is_plan, read_plan
from launcher.plan.planning import read_model, saved_plan
from launcher.profile.use import profile_file, profile_of
from launcher.progress import open_progress
from launcher.results.report import plan_as_json
from launcher.results.report_text import open_console, plan_text
from partition.plan import Plan

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "td:first-child,th:first-child{text-align:left}"
)


@dataclass(frozen=True)
class Shown:
    """A plan and where its picture was written, if anywhere."""

    plan: Plan
    output: Path | None

    def as_json(self) -> dict[str, Any]:
        """The plan as `launch --plan-only --json` prints it, and the picture's path."""
        picture = None if self.output is None else str(self.output)
        return {**plan_as_json(self.plan), "picture": picture}

    def print(self) -> None:
        """Print the plan as text, or where its picture is."""
        console = open_console()
        console.print(plan_text(self.plan) if self.output is None else f"drawn: {self.output}")


def perform(options: ShowOptions) -> Shown:
    """Read the plan and draw it; raises `BadInputError`."""
    folder = options.plan if options.plan.is_dir() else options.plan.parent
    if not is_plan(options.plan):
        raise BadInputError(
            f"{options.plan}: is no saved plan; make one with launch --plan-only --save or "
            "partition solve --save"
        )
    if options.output is not None and options.output.suffix not in (".svg", ".html"):
        raise BadInputError(
            f"--output {str(options.output)!r}: name a file that ends in .svg or .html"
        )
    with open_progress() as progress:
        saved, cluster = read_plan(folder), load_cluster(folder / CLUSTER)
        progress.say(f"reading {saved.model}")
        model = read_model(cluster)
        plan = saved_plan(cluster, model, saved, profile_of(profile_file(cluster, model)))
    if options.output is not None:
        picture = plan_svg(plan, model.rewritten(plan.rewrites).network)
        text = picture if options.output.suffix == ".svg" else _page(plan, picture)
        write_text(options.output, text, f"--output {str(options.output)!r}")
    return Shown(plan, options.output)


def _page(plan: Plan, picture: str) -> str:
    title = escape(f"{plan.network} on {len(plan.devices)} devices")
    rows = "\n".join(
        f"<tr><td>{escape(device.name)}</td>"
        f"<td>{sum(where == device.name for where in plan.assignment.values())}</td>"
        f"<td>{plan.memory[device.name].weights_bytes / 1e6:.1f}</td>"
        f"<td>{plan.memory[device.name].total_bytes / 1e6:.1f}</td></tr>"
        for device in plan.devices
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>\n"
        f"<p>{plan.period_s * 1e3:.2f} ms per frame, {plan.bytes_per_frame / 1e6:.2f} MB per frame "
        f"between devices; times are {plan.times}. {escape(plan.strategy)}: "
        f"{escape(plan.explanation)}</p><p>{escape(plan.proof)}</p>\n"
        "<table><tr><th>device</th><th>layers</th><th>MB of weights</th><th>MB in all</th></tr>\n"
        f"{rows}</table>\n{picture}</body></html>\n"
    )
