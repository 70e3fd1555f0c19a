"""Compares a run's results with those of plain ONNX Runtime on the whole model, network by network.

The whole, unpartitioned model runs in a separate process after the stream, so that it does not
disturb the run. Every frame is compared by the strict rules (`agreement`); frames that remain
doubtful are computed again (`doubts`).
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cnn.model import Model
from launcher.plan.subnet_files import cut_subnets
from launcher.results.collecting import Results
from launcher.results.comparison.agreement import Agreement, agreement, compare, worse
from launcher.results.comparison.doubts import Doubt, settle
from launcher.results.comparison.replay import INPUT, Replay
from launcher.results.comparison.tape import Tape, TapeStep
from launcher.results.comparison.tolerance import FirstDifference, Numbers, strict
from launcher.results.networks import network_numbers
from launcher.run.parts import Part, parts_of
from launcher.run.runtime import Frame, SubnetFiles
from nodes.protocol.payload import Array
from partition.plan import Plan
from partition.wire import LOSSY

BATCH_BYTES = 256 << 20
"""The most bytes of inputs that are on disk at a time; the model is loaded once for each batch."""

_WHOLE = "whole"


def reference_results(
    model: Path,
    outputs: Sequence[str],
    inputs: int,
    frame: Callable[[int], Frame],
    folder: Path,
    on_done: Callable[[int], None],
    *,
    is_fused: bool = True,
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """Yield i and the whole model's `outputs` for distinct input i, for i in 0 … `inputs` − 1.

    `folder` is used for the exchange with the process that computes; `on_done` is called with the
    number of inputs done. Operators are fused as ONNX Runtime does by default, unless `is_fused` is
    false. Raises `RunFailedError` if the model cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    while start < inputs:
        size = sum(array.nbytes for array in frame(start).values())
        numbers = range(start, min(inputs, start + max(1, BATCH_BYTES // max(1, size))))
        with tempfile.TemporaryDirectory(dir=folder) as place:
            tape = Tape(Path(place), numbers)
            for number in numbers:
                for name, array in frame(number).items():
                    tape.put(number, INPUT, name, array)
            step = TapeStep(
                model,
                {name: (tape.file(INPUT, name), ()) for name in frame(start)},
                {name: tape.file(_WHOLE, name) for name in outputs},
                "all" if is_fused else "none",
            )

            def show(done: int, before: int = start) -> None:
                on_done(before + done)

            tape.run([step], show)
            for number in numbers:
                yield number, {name: tape.get(number, _WHOLE, name) for name in outputs}
        start = numbers.stop


@dataclass(frozen=True)
class ExecutedPlans:
    """The plan with which a run began, its subnets, and the plan with which it ended, if another.

    `rounds_alike` says that every node computes 8-bit numbers bit by bit as this machine does.
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
    ran: ExecutedPlans | None = None,
) -> dict[str, Agreement]:
    """Compare all results with the whole model's; return the agreement of each network.

    Temporary files go to `folder`; `on_done` is called with (inputs compared, all inputs). `given`
    is the user's own tolerance. Without the executed plans, `ran`, doubtful frames are judged by
    movement alone. The result is empty if no results were kept. Raises `RunFailedError` if a
    network cannot be run.
    """
    parts, first = parts_of(model), results.first
    if first is None:
        return {}
    count = len(results.compared)
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
        renamed = _in_run_names(part, constants.compared(references), results)
        compared = compare(first, names, renamed, numbers, given)
        verdict = worse(compared.agreement, constants.agreement or compared.agreement)
        if compared.doubtful and (lossy := _lossy(ran)):
            doubts = (agreement(n, bad, lossy) for n, bad in compared.doubtful.items())
            verdict = functools.reduce(worse, doubts, verdict)
        elif compared.doubtful:
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


def _lossy(ran: ExecutedPlans | None) -> FirstDifference | None:
    """Say that the plans encode tensors between nodes with losses; None if they do not.

    The subnets, computed here, would not explain the results then.
    """
    plans = () if ran is None else (ran.plan, ran.replanned or ran.plan)
    used = {channel.encoding for plan in plans for channel in plan.channels} & LOSSY
    if not used:
        return None
    return FirstDifference(
        f"tensors between nodes are encoded as {' and '.join(sorted(used))}, which changes "
        "results: choose a more precise `wire`, or allow more by `tolerance`"
    )


class _Constants:
    """Compares the constant outputs of a network with those of the whole model."""

    def __init__(self, part: Part, numbers: Numbers, given: float | None) -> None:
        self.agreement: Agreement | None = None
        self._values = part.model.constant_outputs
        self._numbers = numbers
        self._given = given

    def compared(
        self, references: Iterator[tuple[int, Mapping[str, Array]]]
    ) -> Iterator[tuple[int, Mapping[str, Array]]]:
        """Yield the references, and compare the constants of the first; all have the same."""
        for number, outputs in references:
            if self._values and self.agreement is None:
                wanted = {name: outputs[name] for name in self._values}
                found = strict(self._values, wanted, self._numbers, self._given, {})
                self.agreement = agreement(number, found)
            yield number, outputs


def _replays(model: Model, ran: ExecutedPlans | None, folder: Path) -> list[Replay]:
    if ran is None:
        return []
    numbers = network_numbers(model)
    subnets = ran.subnets
    if ran.plan.batch > 1:  # only single frames are computed again
        subnets = cut_subnets(model, ran.plan, folder / "single", lambda _done, _all: None)
    replays = [Replay(model, ran.plan, subnets, numbers, folder)]
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
    """Yield the results of one whole network for each distinct input that has a result, from the
    state with which the cluster computed that frame."""
    numbers = results.compared

    def frame(index: int) -> Frame:
        return part.own(results.whole_frame(numbers[index]), _read(part))

    made = (*part.model.network.outputs, *part.model.constant_outputs)
    found = reference_results(original, made, len(numbers), frame, folder, on_done)
    for index, outputs in found:
        yield numbers[index], outputs


def _read(part: Part) -> tuple[str, ...]:
    """The inputs of a whole network, its state among them."""
    return (*part.model.network.inputs, *part.model.network.state)


def _in_run_names(
    part: Part, references: Iterator[tuple[int, Mapping[str, Array]]], results: Results
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """Yield the references under the names of the run; `results` gets those of a lone network."""
    for number, outputs in references:
        if part.is_alone:
            made = part.model.network.outputs
            results.on_reference(number, {name: outputs[name] for name in made})
        yield number, {part.common(name): array for name, array in outputs.items()}
