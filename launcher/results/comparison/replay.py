"""Runs a plan's subnets again on the launching machine, to find out which of them is wrong.

Each frame is computed in three *streams*. `whole` is the network before any rewrite, with all
tensors between phases. `chain` runs the subnets one after another, as agents on this machine do.
`step` runs every subnet in plain ONNX Runtime on the whole network's own tensors, so that a
difference is the subnet's own error and not that of an earlier one.

A step may differ because the engine fuses operators of a subnet otherwise than in the whole
network, as happens with parts of quantised layers. It is then repeated with nothing fused, neither
in the subnet nor in the whole network. Both round in the same way then, so a difference that
remains is an error. Half precision is rounded after every operator (`cnn.reading.half_precision`).

Rewrites compute tensors in parts and declare the whole tensor as a view of them
(`cnn.layers.views`). Read in reverse, a view says which part of the whole network's tensor each of
these tensors is (`places`), and a part is compared with that part only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cnn.layers.views import Bounds, Join, View
from cnn.model import Model
from cnn.network import Layer
from cnn.reading.half_precision import write_rounded
from cnn.rewrite.rewrites import Copies, original_name
from launcher.results.comparison.tape import Level, Tape, TapeStep
from launcher.results.comparison.tolerance import (
    FirstDifference,
    Numbers,
    Outputs,
    WorstOutput,
    difference,
    judge_step,
    strict,
)
from launcher.run.runtime import SubnetFiles
from nodes.protocol.payload import Array
from partition.plan import Plan, PlannedPhase


@dataclass(frozen=True, slots=True)
class Place:
    """The part of the whole network's tensor `of` within `bounds`; without bounds, all of it."""

    of: str
    bounds: Bounds = ()

    def cut(self, array: Array) -> Array:
        """Return this part of the tensor's values."""
        within = {axis: slice(start, stop) for axis, start, stop in self.bounds}
        return array[tuple(within.get(axis, slice(None)) for axis in range(array.ndim))]


def places(tensors: Mapping[str, str], views: Mapping[str, View]) -> dict[str, Place]:
    """Return the place of each tensor of the rewritten network, as far as views determine it.

    `tensors` maps those that the whole network has too (views included) to their names there. The
    rows of a band together with its halo have no place.
    """
    found = {name: Place(of) for name, of in tensors.items()}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        view = views.get(name)
        if not isinstance(view, Join):
            continue
        whole = found[name]
        outer = {axis: (start, stop) for axis, start, stop in whole.bounds}
        start = outer.get(view.axis, (0, 0))[0]
        for part, extent in zip(view.parts, view.extents, strict=True):
            stop = start + extent
            if part not in found:
                within = {**outer, view.axis: (start, stop)}
                bounds = tuple((axis, *ends) for axis, ends in sorted(within.items()))
                found[part] = Place(whole.of, bounds)
                waiting.append(part)
            start = stop
    return found


INPUT, CHAIN, _CHAIN_UNFUSED = "in", "chain", "chain unfused"
_WHOLE: Mapping[Level, str] = {"all": "whole", "none": "whole unfused"}
_STEP: Mapping[Level, str] = {"all": "step", "none": "step unfused"}


class Replay:
    """Runs the subnets of `plan`; files are written to `folder`."""

    def __init__(
        self,
        model: Model,
        plan: Plan,
        subnets: Mapping[str, SubnetFiles],
        numbers: Numbers,
        folder: Path,
    ) -> None:
        self.plan = plan
        self._subnets = subnets
        self._numbers = numbers
        self._network = model.network
        self._given = frozenset((*model.network.inputs, *model.network.state))
        self._whole = model.cut(
            [layer.name for layer in model.network.layers],
            model.network.inputs,
            model.network.outputs,
            folder,
        ).graph
        self._folder = folder
        rewritten = model.rewritten(plan.rewrites) if plan.rewrites else model
        self._rewritten = rewritten.network
        copied = any(isinstance(rewrite, Copies) for rewrite in plan.rewrites)
        views = rewritten.operators.views.by_name
        names = {*rewritten.network.tensors, *views}
        own = {name: name for name in names}
        if copied:  # parts of a copy's tensors are found by its views
            own = {n: original_name(n) for n in names if n.rpartition("@")[2].isdigit()}
        self._places = places(
            {n: of for n, of in own.items() if of in model.network.tensors}, views
        )
        self._order = _in_order(plan.phases, rewritten.network.inputs)

    def record(self, tape: Tape, *, chain: bool = True) -> None:
        """Compute the three streams, or all but the chain, from the inputs on the tape."""
        tape.run(
            [
                self._whole_step(tape, "all", self.crossing()),
                *(self._step(tape, phase, CHAIN) for phase in self._order if chain),
                *(self._step(tape, phase, _STEP["all"]) for phase in self._order),
            ]
        )

    def whole(self, tape: Tape, frame: int) -> Outputs:
        """The results of the network as it was read from the file, before any rewrite."""
        return {name: tape.get(frame, _WHOLE["all"], name) for name in self._network.outputs}

    def results(self, tape: Tape, frame: int) -> Iterator[Outputs]:
        """Yield the results of the chain of subnets, for each copy of the network."""
        return self._results(tape, frame, CHAIN)

    def results_unfused(self, tape: Tape, frame: int) -> Iterator[Outputs]:
        """The same with nothing fused."""
        if not tape.has(tape.frames[0], _CHAIN_UNFUSED, self._rewritten.outputs[0]):
            tape.run([self._step(tape, phase, _CHAIN_UNFUSED) for phase in self._order])
        return self._results(tape, frame, _CHAIN_UNFUSED)

    def _results(self, tape: Tape, frame: int, stream: str) -> Iterator[Outputs]:
        count, made = len(self._network.outputs), self._rewritten.outputs
        for start in range(0, len(made), count):
            names = zip(self._network.outputs, made[start : start + count], strict=True)
            yield {own: tape.get(frame, stream, name) for own, name in names}

    def wrong_step(self, tape: Tape, frame: int) -> tuple[PlannedPhase, WorstOutput] | None:
        """The first phase whose subnet is wrong, with its worst output; None if all are right."""
        for phase in self._order:
            right = self._right(tape, frame, phase.outputs, "all")
            made = {name: tape.get(frame, _STEP["all"], name) for name in right}
            if strict(made, right, self._numbers).agrees:
                continue
            self._unfuse(tape)
            watched = (*phase.outputs, *self._chosen_from(phase))
            right = self._right(tape, frame, watched, "none")
            made = {name: tape.get(frame, _STEP["none"], name) for name in right}
            found = judge_step(made, right, self._numbers)
            if not found.agrees:
                return phase, found
        return None

    def begins_in(
        self, tape: Tape, frame: int, phase: PlannedPhase, error: WorstOutput
    ) -> FirstDifference:
        """Find the layer of a wrong phase from which on tensors differ."""
        layer, tensor = self._first_wrong_layer(tape, frame, phase, error)
        return FirstDifference(
            f"the error begins in phase {phase.name} on node {phase.device}, at layer "
            f"{layer.name!r}: given the whole model's own tensors, the subnet computes another "
            f"{tensor!r} (relative difference {error.error:.1e})",
            phase.name,
            phase.device,
            layer.name,
            tensor,
        )

    def crossing(self) -> set[str]:
        """The whole network's tensors that phases exchange, possibly in parts, and its outputs."""
        made = [name for phase in self._order for name in phase.outputs]
        crossing = {self._places[name].of for name in made if name in self._places}
        return crossing.union(self._network.outputs)

    def of_a_node(self, output: str) -> FirstDifference:
        """Describe an error that the subnets do not show on this machine: which nodes may have
        made it."""
        wanted = {name for name, place in self._places.items() if place.of == output}
        nodes: dict[str, None] = {}
        last = self._order[-1]
        for phase in reversed(self._order):
            if wanted.intersection(phase.outputs):
                if not nodes:
                    last = phase
                nodes[phase.device] = None
                wanted.update(phase.inputs)
        names = list(reversed(nodes))
        which = f"node {names[0]}" if len(names) == 1 else "one of the nodes " + ", ".join(names)
        return FirstDifference(
            f"the plan's subnets agree with the whole model on this machine, so the engine or the "
            f"memory of {which} computed {output!r} wrongly (phase {last.name} makes it)",
            last.name,
            names[0] if len(names) == 1 else "",
            tensor=output,
        )

    def _first_wrong_layer(
        self, tape: Tape, frame: int, phase: PlannedPhase, error: WorstOutput
    ) -> tuple[Layer, str]:
        """The first layer of the phase whose error is at least an eighth of the phase's own; a
        smaller one may be rounding."""
        layers = [layer for layer in self._rewritten.layers if layer.name in set(phase.layers)]
        made = [(layer, name) for layer in layers for name in layer.outputs]
        inside = [name for _, name in made if name in self._places]
        tape.run(
            [
                self._whole_step(tape, "none", {self._places[name].of for name in inside}),
                self._step(tape, phase, _STEP["none"], inside),
            ]
        )
        least = max(self._numbers.limits.strict, error.error / 8)
        for layer, name in made:
            if name in self._places and tape.has(frame, _STEP["none"], name):
                right = self._right(tape, frame, [name], "none")[name]
                found = tape.get(frame, _STEP["none"], name)
                if difference(found, right, self._numbers).largest >= least:
                    return layer, name
        return next((layer, name) for layer, name in made if name == error.output)

    def _unfuse(self, tape: Tape) -> None:
        """Compute the whole network and all steps with nothing fused, unless that was done."""
        if tape.has(tape.frames[0], _WHOLE["none"], self._network.outputs[0]):
            return
        step = _STEP["none"]
        tape.run(
            [
                self._whole_step(tape, "none", self.crossing() | self._chosen_from_whole()),
                *(self._step(tape, each, step, self._chosen_from(each)) for each in self._order),
            ]
        )

    def _chosen_from(self, phase: PlannedPhase) -> tuple[str, ...]:
        """The floating-point tensors inside a phase from which layers such as `ArgMax` choose; an
        error there may not show in the choice."""
        layers = [layer for layer in self._rewritten.layers if layer.name in set(phase.layers)]
        made = {name for layer in layers for name in layer.outputs} - set(phase.outputs)
        return tuple(
            name
            for layer in layers
            if any(self._dtype(output)[0] != "f" for output in layer.outputs)
            for name in layer.inputs
            if name in made and name in self._places and self._dtype(name)[0] == "f"
        )

    def _chosen_from_whole(self) -> set[str]:
        names = (name for phase in self._order for name in self._chosen_from(phase))
        return {self._places[name].of for name in names}

    def _dtype(self, name: str) -> str:
        return self._rewritten.tensors[name].dtype

    def _right(
        self, tape: Tape, frame: int, names: Sequence[str], level: Level
    ) -> dict[str, Array]:
        """The whole network's values of these tensors, as far as it has them."""
        found = {name: self._places[name] for name in names if name in self._places}
        return {
            n: place.cut(tape.get(frame, _WHOLE[level], place.of)) for n, place in found.items()
        }

    def _whole_step(self, tape: Tape, level: Level, tensors: set[str]) -> TapeStep:
        inputs = {name: (tape.file(INPUT, name), ()) for name in self._given}
        outputs = {name: tape.file(_WHOLE[level], name) for name in sorted(tensors)}
        return TapeStep(self._at(level, self._whole), inputs, outputs, level)

    def _at(self, level: Level, graph: Path) -> Path:
        """The graph to run at a level: with nothing fused, one of half precision rounds every
        tensor, as it is done between phases."""
        if level != "none" or self._numbers.precision != "half":
            return graph
        return write_rounded(graph, self._folder / "rounded")

    def _step(
        self,
        tape: Tape,
        phase: PlannedPhase,
        stream: str,
        also: Sequence[str] = (),
    ) -> TapeStep:
        """The step of a phase on the chain's tensors, or on the whole network's where it has them.

        Its outputs go to the same stream.
        """
        unfused = stream in (_STEP["none"], _CHAIN_UNFUSED)
        level: Level = "agent" if stream == CHAIN else "none" if unfused else "all"
        inputs: dict[str, tuple[str, Bounds]] = {}
        for name in (*phase.inputs, *(tensor.name for tensor, _ in phase.state)):
            place = self._places.get(name)
            if place is not None and place.of in self._given:
                inputs[name] = tape.file(INPUT, place.of), place.bounds
            elif place is not None and stream not in (CHAIN, _CHAIN_UNFUSED):
                inputs[name] = tape.file(_WHOLE[level], place.of), place.bounds
            else:
                inputs[name] = tape.file(stream, name), ()
        outputs = {name: tape.file(stream, name) for name in (*phase.outputs, *also)}
        graph = self._at(level, self._subnets[phase.name].graph)
        return TapeStep(graph, inputs, outputs, level)


def _in_order(phases: Sequence[PlannedPhase], inputs: Sequence[str]) -> tuple[PlannedPhase, ...]:
    """Return the phases in topological order."""
    waiting, known, order = list(phases), set(inputs), []
    while waiting:
        ready = next(phase for phase in waiting if known.issuperset(phase.inputs))
        waiting.remove(ready)
        order.append(ready)
        known.update(ready.outputs)
    return tuple(order)
