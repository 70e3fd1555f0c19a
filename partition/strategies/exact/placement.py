"""The decision variables of the exact strategy: the stage of each layer, the device of each stage.

There is a **stage** per device. In a *contiguous* partition stages are numbered along the edges:
no tensor goes from a later stage to an earlier one (Yin et al., Eq. 1; their Eq. 2 holds by the
encoding). Layer l's decisions are then "l is in stage k or an earlier one" for every k but the
last, which makes an edge an implication per stage and keeps the linear relaxation tight. In a
*vertical* partition any layer may be in any stage.

The device of a stage matters only if devices differ. In a contiguous partition it is then a
separate decision. If devices share machines, and in a vertical partition, stage k is device k.

Source: J. Yin, Z. Zhang, C. Yu, "Exact memory- and communication-aware scheduling of DNNs on
pipelined edge TPUs", IEEE/ACM Symposium on Edge Computing, 2022, Eq. 1–4 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from partition.strategies.alike import kind_by_device
from partition.strategies.exact.terms import Terms

Expression: TypeAlias = Any
"""A linear expression of OR-Tools: an integer, a variable or a sum of them."""

Value: TypeAlias = Callable[[Expression], int]
"""The value of an expression in a solution."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The set of partitions to choose from.

    `contiguous`: see the module's docstring. `siblings` keeps all layers that read one layer's
    output in one stage (Yin et al., Eq. 14).
    """

    contiguous: bool = True
    siblings: bool = False


class Placement:
    """A CP-SAT `model` with the decision variables.

    `at[layer][stage]` is 1 where a layer is: s_i^k (Yin et al., Eq. 2). `place[stage][kind]` is 1
    if a stage is on a device of that kind (`Terms.kinds`).
    """

    def __init__(self, terms: Terms, shape: Shape) -> None:
        from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second to import

        self.terms = terms
        self.model: Any = cp_model.CpModel()
        self.variables: list[Any] = []
        self.stages = range(len(terms.problem.devices))
        self.is_ordered = not shape.contiguous or len(terms.kinds) == 1 or not terms.are_apart
        self.is_contiguous = shape.contiguous
        self._until: list[list[Expression]] = []
        choose = self._along if shape.contiguous else self._anywhere
        self.at = [choose(layer) for layer in range(terms.layers)]
        self.place = [self._places(stage) for stage in self.stages]
        if not self.is_ordered:
            for kind, members in enumerate(terms.kinds):
                self.model.add(sum(place[kind] for place in self.place) == len(members))
        if shape.contiguous:
            self._monotone()
        else:
            self._break_symmetry()
        self._pin()
        if shape.siblings:
            self._keep_siblings()

    def boolean(self, name: str) -> Expression:
        """Create a variable that is 0 or 1."""
        return self.integer(0, 1, name)

    def integer(self, least: int, most: int, name: str) -> Expression:
        """Create a variable in [least, most]."""
        self.variables.append(self.model.new_int_var(least, most, name))
        return self.variables[-1]

    def require(self, bound: Callable[[int, int], Any]) -> None:
        """Add `bound`(stage, device), a constraint or None, for every stage and device.

        The constraint applies if the stage is on the device.
        """
        for stage in self.stages:
            for kind, members in enumerate(self.terms.kinds):
                if self.is_ordered and stage not in members:
                    continue
                constraint = bound(stage, stage if self.is_ordered else members[0])
                if constraint is None:
                    continue
                added = self.model.add(constraint)
                if not self.is_ordered:
                    added.only_enforce_if(self.place[stage][kind])

    def numbers(self, value: Value) -> list[int]:
        """Return the device number of each layer in a solution."""
        devices = list(self.stages)
        if not self.is_ordered:
            left = [list(members) for members in self.terms.kinds]
            devices = [left[_chosen(place, value)].pop(0) for place in self.place]
        return [devices[_chosen(at, value)] for at in self.at]

    def hint(self, numbers: Sequence[int]) -> None:
        """Suggest an assignment, a device number per layer; it need not be feasible."""
        stage_of = {device: stage for stage, device in enumerate(self._order(numbers))}
        for layer, device in enumerate(numbers):
            own = stage_of[device]
            if self._until:
                for k, by in enumerate(self._until[layer][:-1]):
                    self.model.add_hint(by, int(own <= k))
            else:
                for k, on in enumerate(self.at[layer]):
                    self.model.add_hint(on, int(own == k))
        if not self.is_ordered:
            for device, stage in stage_of.items():
                for kind, members in enumerate(self.terms.kinds):
                    self.model.add_hint(self.place[stage][kind], int(device in members))

    def suggest(self, values: Sequence[int]) -> None:
        """Start the next search from a solution's `values` of all variables that existed then."""
        self.model.clear_hints()
        for variable, value in zip(self.variables, values, strict=False):
            self.model.add_hint(variable, value)

    def narrow(self, loads: Sequence[int], most: int) -> None:
        """Exclude what no contiguous partition with stage loads of at most `most` can contain.

        `loads` [layers] is the least that each layer adds to its stage. The layers that must
        precede a layer need separate stages (the stage windows of assembly line balancing).
        """
        if not self._until or most <= 0:
            return
        before, after = self.terms.upstream_and_downstream(loads)
        for until, upstream, downstream in zip(self._until, before, after, strict=True):
            for k in self.stages[:-1]:
                if upstream > (k + 1) * most:
                    self.model.add(until[k] == 0)
                elif downstream > (len(self.stages) - 1 - k) * most:
                    self.model.add(until[k] == 1)

    def _order(self, numbers: Sequence[int]) -> list[int]:
        """Return the devices by stage, those of one kind in the order that the model requires."""
        layers = range(len(numbers)) if self._until else self.terms.heaviest
        seen = list(dict.fromkeys(numbers[layer] for layer in layers))
        seen += [device for device in self.stages if device not in seen]
        if not self.is_ordered:
            return seen
        order = list(self.stages)
        for members in self.terms.kinds:
            for stage, device in zip(members, [d for d in seen if d in members], strict=True):
                order[stage] = device
        return order

    def _along(self, layer: int) -> list[Expression]:
        until = [*(self.boolean(f"layer {layer} by {k}") for k in self.stages[:-1]), 1]
        for earlier, later in pairwise(until[:-1]):
            self.model.add_implication(earlier, later)
        self._until.append(until)
        return [until[0], *(later - earlier for earlier, later in pairwise(until))]

    def _anywhere(self, layer: int) -> list[Expression]:
        on = [self.boolean(f"layer {layer} on {k}") for k in self.stages]
        self.model.add_exactly_one(on)
        return on

    def _places(self, stage: int) -> list[Expression]:
        kinds = self.terms.kinds
        if self.is_ordered:
            return [int(stage in members) for members in kinds]
        placed = [self.boolean(f"stage {stage} of kind {kind}") for kind in range(len(kinds))]
        self.model.add_exactly_one(placed)
        return placed

    def _monotone(self) -> None:
        for source, reader in self.terms.edges:
            for k in self.stages[:-1]:
                self.model.add_implication(self._until[reader][k], self._until[source][k])

    def _break_symmetry(self) -> None:
        """Forbid the r-th device of each kind the r − 1 heaviest layers."""
        for members in self.terms.kinds:
            for rank, layer in enumerate(self.terms.heaviest[: len(members)]):
                for device in members[rank + 1 :]:
                    self.model.add(self.at[layer][device] == 0)

    def _pin(self) -> None:
        kind_of = kind_by_device(self.terms.kinds)
        for layer, device in enumerate(self.terms.problem.pinned.tolist()):
            if device >= 0:
                for stage in self.stages:
                    self.model.add(self.at[layer][stage] <= self.place[stage][kind_of[device]])

    def _keep_siblings(self) -> None:
        for first, *others in self.terms.siblings:
            for other in others:
                for stage in self.stages:
                    self.model.add(self.at[first][stage] == self.at[other][stage])


def _chosen(options: Sequence[Expression], value: Value) -> int:
    return [value(option) for option in options].index(1)
