"""Judges frames whose error is larger than the precision of the network's numbers explains.

Only these doubtful frames are computed again: by the whole model, as it is and with other rounding,
and by the plan's subnets (`replay`). This module applies the rules of `tolerance` in their order
and describes what is wrong if none of them holds. If a run used several plans, as after a loss, it
suffices that one of them explains the result.

At most `MOST_JUDGED` frames are computed again, those with the largest errors. If all of them
agree, so do the others: the same subnets computed them, and their errors are smaller.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cnn.reading.half_precision import write_rounded
from launcher.results.comparison.agreement import Agreement, FirstResults, agreement, worse
from launcher.results.comparison.replay import INPUT, Replay
from launcher.results.comparison.tape import Level, Tape, TapeStep
from launcher.results.comparison.tolerance import (
    FirstDifference,
    Numbers,
    Outputs,
    WorstOutput,
    strict,
    within_fusing,
    within_movement,
)
from launcher.run.runtime import Frame

MOST_JUDGED = 16
"""The most frames that are computed again."""

_AT_A_TIME = 4
"""The number of frames whose tensors are on disk at the same time."""

_AS_IS, _UNFUSED, _ROUNDED = "as is", "unfused", "rounded"
"""Streams of the whole model: as it is; with nothing fused; and in addition with every tensor
rounded to half precision (`cnn.reading.half_precision`), as tensors between phases are. A session
on a processor that computes in single precision does not round the others."""

TapeOf: TypeAlias = Callable[[Path, Sequence[int]], Tape]
"""Makes a tape in a folder, for these frames."""


@dataclass(frozen=True)
class Doubt:
    """A network of the run, and the strict rules' verdicts on its doubtful frames.

    `original` is the whole model's file; `inputs` and `outputs` map names in the run to names in
    that file.
    """

    original: Path
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    numbers: Numbers
    verdicts: Mapping[int, WorstOutput]

    @property
    def judged(self) -> tuple[int, ...]:
        """The `MOST_JUDGED` frames with the largest errors, in frame order."""
        furthest = sorted(self.verdicts, key=lambda number: -self.verdicts[number].ratio)
        return tuple(sorted(furthest[:MOST_JUDGED]))


def settle(
    doubt: Doubt,
    replays: Sequence[Replay],
    first: FirstResults,
    frame: Callable[[int], Frame],
    folder: Path,
    *,
    rounds_alike: bool,
    tape: TapeOf = Tape,
) -> Agreement:
    """Return the first verdict on a doubtful frame that is not an agreement, or else the worst.

    `frame` returns the frame of a distinct input. `rounds_alike` says that the nodes' engines
    compute 8-bit numbers bit by bit as this machine's does. Raises `RunFailedError` if something
    cannot be computed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: list[Agreement] = []
    numbers = doubt.judged
    for start in range(0, len(numbers), _AT_A_TIME):
        with tempfile.TemporaryDirectory(dir=folder) as tapes:
            frames = numbers[start : start + _AT_A_TIME]
            batch = _Batch(doubt, replays, first, frames, Path(tapes), tape)
            batch.record(frame)
            for number in frames:
                judged = batch.judge(number, rounds_alike=rounds_alike)
                if not judged.agrees:  # one wrong frame suffices, and each takes long to judge
                    return judged
                found.append(judged)
    return functools.reduce(worse, found)


class _Batch:
    """A few doubtful frames, with a tape for the whole model and one for each plan."""

    def __init__(
        self,
        doubt: Doubt,
        replays: Sequence[Replay],
        first: FirstResults,
        frames: Sequence[int],
        folder: Path,
        tape: TapeOf,
    ) -> None:
        self._frames = tuple(frames)
        self._doubt = doubt
        self._first = first
        self._tape = tape(folder / "whole", frames)
        self._replays = [
            (replay, tape(folder / f"plan {number}", frames))
            for number, replay in enumerate(replays)
        ]
        is_half = doubt.numbers.precision == "half"
        self._variants = [_UNFUSED, _ROUNDED] if is_half else [_UNFUSED]
        self._rounded = folder / "rounded"

    def record(self, frame: Callable[[int], Frame]) -> None:
        """Compute all tensors that the rules need."""
        for number in self._frames:
            for name, array in frame(number).items():
                for tape in (self._tape, *(tape for _, tape in self._replays)):
                    tape.put(number, INPUT, name, array)
        self._tape.run([self._step(stream) for stream in (_AS_IS, *self._variants)])
        for replay, tape in self._replays:
            replay.record(tape)

    def judge(self, number: int, *, rounds_alike: bool) -> Agreement:
        """Apply the rules replay and movement to a frame."""
        doubt = self._doubt
        names = tuple(doubt.outputs)
        wanted = self._outputs(number, _AS_IS)
        found, spread = self._first.get(number, names), self._first.spread(number, wanted)
        variants = [self._outputs(number, stream) for stream in self._variants]
        verdict, numbers = doubt.verdicts[number], doubt.numbers
        moved = within_movement(found, wanted, variants, numbers, "movement", spread)
        if not self._replays and moved.agrees and verdict.rule != "given":
            return agreement(number, moved)
        begins: FirstDifference | None = None
        for replay, tape in self._replays:
            begins = self._wrong(replay, tape, number, wanted, variants)
            if begins is not None:
                continue
            chains = ({name: made[name] for name in names} for made in replay.results(tape, number))
            holds = any(strict(found, made, numbers).agrees for made in chains)
            may_round = not rounds_alike or numbers.precision != "8-bit"
            if holds:
                begins = _DRIFT
                found_right = within_movement(found, wanted, variants, numbers, "replay", spread)
                if not found_right.agrees and not spread:
                    found_right = self._by_fusing(replay, tape, number, found, wanted)
            elif may_round:
                begins = replay.of_a_node(verdict.output)
                found_right = moved
            else:
                begins = replay.of_a_node(verdict.output)
                continue
            if found_right.agrees and verdict.rule != "given":
                return agreement(number, found_right)
        return agreement(number, verdict, begins)

    def _wrong(
        self,
        replay: Replay,
        tape: Tape,
        number: int,
        wanted: Outputs,
        variants: Sequence[Outputs],
    ) -> FirstDifference | None:
        """Return where a plan's subnets, computed here, are wrong; None if they are right."""
        wrong = replay.wrong_step(tape, number)
        if wrong is not None:
            return replay.begins_in(tape, number, *wrong)
        made = replay.whole(tape, number)
        read = {name: made[name] for name in self._doubt.outputs}
        numbers = self._doubt.numbers
        is_right = within_movement(read, wanted, variants, numbers, "replay").agrees
        return None if is_right else _READING

    def _by_fusing(
        self, replay: Replay, tape: Tape, number: int, found: Outputs, wanted: Outputs
    ) -> WorstOutput:
        """Judge the plan and the whole model with nothing fused; the best of the copies counts."""
        right, numbers = self._outputs(number, self._variants[-1]), self._doubt.numbers
        verdicts = [
            within_fusing(found, wanted, {name: made[name] for name in wanted}, right, numbers)
            for made in replay.results_unfused(tape, number)
        ]
        return min(verdicts, key=lambda verdict: verdict.ratio)

    def _step(self, stream: str) -> TapeStep:
        doubt, tape = self._doubt, self._tape
        outputs = {own: tape.file(stream, name) for name, own in doubt.outputs.items()}
        inputs = {own: (tape.file(INPUT, name), ()) for name, own in doubt.inputs.items()}
        graph = doubt.original
        if stream == _ROUNDED:
            graph = write_rounded(graph, self._rounded)
        level: Level = "all" if stream == _AS_IS else "none"
        return TapeStep(graph, inputs, outputs, level)

    def _outputs(self, number: int, stream: str) -> Outputs:
        return {name: self._tape.get(number, stream, name) for name in self._doubt.outputs}


_READING = FirstDifference(
    "the error arises before the network is partitioned: after reading and simplification, the "
    "network computes something else than its file"
)
_DRIFT = FirstDifference(
    "no phase is wrong: each computes on this machine what the whole model does from the same "
    "tensors, but together they differ by more than the model's own result moves when its input is "
    "rounded differently; --tolerance can allow it"
)
