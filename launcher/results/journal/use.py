"""The journal that `journal:` or `--journal` asks for, and its part of the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from launcher.config.load import Cluster
from launcher.errors import BadInputError
from launcher.inputs.frames import Inputs
from launcher.results.handling import Results
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.journal import Journal
from launcher.results.journal.opening import open_journal
from launcher.results.journal.stacks import output_specs
from launcher.results.report import Accuracy, JournalReport, rows_of, verdict_as_json
from launcher.results.verify import Agreement
from launcher.run.request import Request

if TYPE_CHECKING:
    from cnn.model import Model


@dataclass(frozen=True)
class Complete:
    """A journal that has everything already: nothing was left to run."""

    frames: int
    dropped: tuple[int, ...]
    journal: JournalReport
    agreement: Agreement | None
    accuracy: Accuracy | None

    @property
    def agrees(self) -> bool:
        """Whether the comparison with the whole model, if there was one, was good."""
        return self.agreement is None or self.agreement.agrees

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data, with the names that a run's report has."""
        return {
            "frames": 0,
            "dropped": len(self.dropped),
            "dropped_frames": rows_of(self.dropped),
            "journal": asdict(self.journal),
            "accuracy": None if self.accuracy is None else asdict(self.accuracy),
            **verdict_as_json(self.agreement),
        }

    def text(self) -> str:
        """For people."""
        dropped = f" ({len(self.dropped)} were dropped)" if self.dropped else ""
        return (
            f"all {self.frames} frames are settled{dropped}, and their results are in "
            f"{self.journal.folder}: nothing was left to run"
        )


def run_journal(request: Request, cluster: Cluster, model: Model, inputs: Inputs) -> Journal | None:
    """The journal that the user asks for, opened; None if none is asked for.

    Raises `BadInputError` if it is not this run's, or `--resume` has nothing to go on with.
    """
    named = cluster.config.journal
    if named is None:
        if request.resume:
            raise BadInputError(
                "--resume: there is no journal to go on with; name its folder by --journal, "
                "or as `journal` in cluster.yaml, from the first launch on"
            )
        return None
    tensors = [model.network.tensors[name] for name in model.network.outputs]
    specs = output_specs(tensors)
    identity = RunIdentity(model.digest, inputs.digest(), len(inputs), specs)
    where = place(request, cluster)
    return open_journal(cluster.path(named), identity, resume=request.resume, where=where)


def place(request: Request, cluster: Cluster) -> str:
    """Where the user named the journal."""
    return "--journal" if request.journal is not None else cluster.source.where(("journal",))


def journal_report(results: Results) -> JournalReport | None:
    """The journal's part of the report after a run."""
    journal = results.journal
    if journal is None:
        return None
    return JournalReport(str(journal.folder), journal.done, results.restored, journal.damaged)
