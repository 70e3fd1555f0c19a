"""The results of a run beside those of the whole model, network by network.

Every frame is compared by the strict rules, which need one run of the whole model; what these leave
in doubt is computed again (`doubts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cnn.model import Model
from launcher.plan.networks import Part, network_numbers, parts_of
from launcher.plan.subnet_files import cut_subnets
from launcher.results.comparison.doubts import Doubt, settle
from launcher.results.comparison.replay import Replay
from launcher.results.comparison.tolerance import Numbers, strict
from launcher.results.handling import Results
from launcher.results.reference import reference_results
from launcher.results.verify import Agreement, agreement, compare, worse
from launcher.run.runtime import Array, Frame, SubnetFiles
from partition.plan import Plan


@dataclass(frozen=True)
class Ran:
    """The plan that a run began with and its subnets; the one that it ended with, if another.

    `rounds_alike`: every node computes 8-bit numbers bit by bit as this machine does.
    """

    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    replanned: Plan | None = None
    rounds_alike: bool = False


def compare_all(
    model: Model,
    results: Results,
    folder: Path,
    on_done: Callable[[int, int], None],
    given: float | None = None,
    ran: Ran | None = None,
) -> dict[str, Agreement]:
    """Network → how far its results are from plain ONNX Runtime's on the whole of it.

    `folder` is for passing files; `on_done` hears (inputs compared, of all). `given` is the user's
    own tolerance. Without what was `ran`, doubtful frames are judged by movement alone. Raises
    `RunFailedError` if a network cannot be run. Empty if no results were kept.
    """
    parts, first = parts_of(model), results.first
    if first is None:
        return {}
    count = results.distinct
    total = count * len(parts)
    on_done(0, total)
    found: dict[str, Agreement] = {}
    replays: list[Replay] | None = None
    for index, part in enumerate(parts):

        def show(done: int, before: int = index * count) -> None:
            on_done(before + done, total)

        place = folder / f"network {index}"
        original = part.model.write_original(place / "original")
        numbers = network_numbers(part.model)
        names = tuple(map(part.common, part.model.network.outputs))
        references = _references(part, original, results, place / "reference", show)
        constants = _Constants(part, numbers, given)
        heard = _heard(part, constants.compared(references), results)
        compared = compare(first, names, heard, numbers, given)
        verdict = worse(compared.agreement, constants.agreement or compared.agreement)
        if compared.doubtful:
            if replays is None:
                replays = _replays(model, ran, folder / "replay")
            doubt = Doubt(
                original,
                {part.common(name): name for name in _read(part)},
                {part.common(name): name for name in part.model.network.outputs},
                numbers,
                compared.doubtful,
            )
            settled = settle(
                doubt,
                replays,
                first,
                results.whole_frame,
                place / "doubts",
                rounds_alike=ran is not None and ran.rounds_alike,
            )
            verdict = worse(verdict, settled)
        found[part.name] = verdict
    return found


class _Constants:
    """Compares the outputs of a network that no input reaches with the whole model's."""

    def __init__(self, part: Part, numbers: Numbers, given: float | None) -> None:
        self.agreement: Agreement | None = None
        self._values = part.model.constant_outputs
        self._numbers = numbers
        self._given = given

    def compared(
        self, references: Iterator[tuple[int, Mapping[str, Array]]]
    ) -> Iterator[tuple[int, Mapping[str, Array]]]:
        """The references as they come; all have the same constants, so the first ones count."""
        for number, outputs in references:
            if self._values and self.agreement is None:
                wanted = {name: outputs[name] for name in self._values}
                found = strict(self._values, wanted, self._numbers, self._given, {})
                self.agreement = agreement(number, found)
            yield number, outputs


def _replays(model: Model, ran: Ran | None, folder: Path) -> list[Replay]:
    if ran is None:
        return []
    numbers = network_numbers(model)
    replays = [Replay(model, ran.plan, ran.subnets, numbers, folder)]
    if ran.replanned is not None:
        subnets = cut_subnets(model, ran.replanned, folder / "replanned", lambda _done, _all: None)
        replays.append(Replay(model, ran.replanned, subnets, numbers, folder))
    return replays


def _references(
    part: Part,
    original: Path,
    results: Results,
    folder: Path,
    on_done: Callable[[int], None],
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """What the whole of one network computes for its part of each distinct input, from the state
    with which the cluster computed that frame."""

    def frame(number: int) -> Frame:
        return part.own(results.whole_frame(number), _read(part))

    return reference_results(original, results.distinct, frame, folder, on_done)


def _read(part: Part) -> tuple[str, ...]:
    """What the whole of a network reads: its state comes from outside there."""
    return (*part.model.network.inputs, *part.model.network.state)


def _heard(
    part: Part, references: Iterator[tuple[int, Mapping[str, Array]]], results: Results
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """The references under the names of the run; `results` hears what a lone network says."""
    for number, outputs in references:
        if part.is_alone:
            made = part.model.network.outputs
            results.on_reference(number, {name: outputs[name] for name in made})
        yield number, {part.common(name): array for name, array in outputs.items()}
