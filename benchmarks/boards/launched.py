"""Launches a cluster as the command `launch` does, and prints figures that its report leaves out.

    python -m benchmarks.boards.launched BEGAN_S CLUSTER FRAMES

`BEGAN_S` is when the command was given, on the monotonic clock. The last line of standard output is
a `benchmarks.boards.turn.Launched` in JSON. It runs in a separate process, because the time to the
first result includes the imports of a command.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.errors import LauncherError, RunFailedError
from launcher.run.request import Request
from launcher.run.runner import real_runtime
from launcher.streaming import job

if TYPE_CHECKING:
    from benchmarks.boards.turn import Launched
    from launcher.results.report import Report
    from launcher.run.runtime import Node, RunResult
    from partition.plan import Plan

SKIPPED = 3
"""At most one in this number of results is left out while the pipeline fills."""


class Said:
    """A display of progress that keeps what is said."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def name_run(self, run: str) -> None:
        """See `ProgressDisplay`."""

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:  # noqa: ARG002
        """See `ProgressDisplay`."""
        self.texts.append(text)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        """See `ProgressDisplay`."""


class Recording:
    """A runner that keeps the results of its runs, and is the real one otherwise."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.results: list[RunResult] = []

    def __call__(self, *arguments: Any) -> RunResult:
        result: RunResult = self._runner(*arguments)
        self.results.append(result)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


def launch(request: Request, began_s: float) -> Launched:
    """Launch, and return what was found; raises `LauncherError`, also if a result is wrong."""
    recorded: list[Recording] = []

    @contextmanager
    def runtime(nodes: tuple[Node, ...]) -> Iterator[Recording]:
        with real_runtime(nodes) as runner:
            recorded.append(Recording(runner))
            yield recorded[-1]

    said = Said()
    outcome = job.launch(request, said, started_s=began_s, runtime=runtime)
    assert outcome.plan is not None
    assert outcome.report is not None
    if outcome.report.problem is not None:
        raise RunFailedError(outcome.report.problem)
    return _launched(outcome.plan, outcome.report, recorded[-1].results[-1], said)


def _launched(plan: Plan, report: Report, result: RunResult, said: Said) -> Launched:
    from benchmarks.boards.rates import filling_frames, steady_rate  # noqa: PLC0415
    from benchmarks.boards.turn import BoardUse, Launched  # noqa: PLC0415 - after the launch

    skipped = min(filling_frames(plan), len(result.received_s) // SKIPPED)
    if result.recoveries:
        skipped = max(skipped, min(result.recoveries[-1].frame, len(result.received_s) - 3))
    return Launched(
        strategy=plan.strategy,
        explanation=plan.explanation,
        rate=steady_rate(result.sent_s, result.received_s, skipped, len(plan.dealing)),
        period_planned_s=report.period_planned_s,
        period_predicted_s=report.period_predicted_s or 0.0,
        period_measured_s=report.period_measured_s or 0.0,
        first_result_s=report.first_result_s,
        boards={
            node.name: BoardUse(
                node.phases,
                node.busy_fraction,
                node.memory_predicted_bytes,
                node.memory_measured_bytes,
                node.memory_idle_bytes,
                node.memory_eq2_bytes,
            )
            for node in report.nodes
            if node.phases
        },
        said=tuple(said.texts),
    )


def main() -> int:
    """Launch what the arguments say."""
    began_s, cluster, frames = sys.argv[1:]
    request = Request(Path(cluster), frames=int(frames), inputs=["random"])
    try:
        found = launch(request, float(began_s))
    except LauncherError as error:
        print(f"launch: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(asdict(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
