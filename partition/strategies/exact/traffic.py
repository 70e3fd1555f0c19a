"""TrafficVariables between stages, as linear expressions over the exact strategy's decisions.

Each expression is a lower bound that is met where the solver minimises it. `near` are the stages on
the same machine as `stage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partition.strategies.exact.placement import Expression, Placement

_Key = tuple[int, int, tuple[int, ...]]


class TrafficVariables:
    """The expressions; each creates its variables when it is first asked for."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._terms = placement.terms
        self._far: dict[_Key, Expression] = {}
        self._copies: dict[_Key, Expression] = {}
        self._leaving: dict[tuple[int, int], Expression] = {}

    def total(self) -> Expression:
        """Bytes per frame that leave a device or the launcher, in `Terms.traffic_unit`; a tensor
        counts once per stage that reads it from elsewhere (com of Yin et al., Eq. 9, summed
        over the stages)."""
        unit = self._terms.traffic_unit
        return sum(
            moved.bytes
            // unit
            * (moved.is_result + sum(self.reads(tensor, k) for k in self._placement.stages))
            for tensor, moved in enumerate(self._terms.tensors)
        )

    def reads(self, tensor: int, stage: int, near: Iterable[int] = ()) -> Expression:
        """1 if `stage` reads a tensor that is made neither in it nor `near`: α_e (Yin et al., Eq.
        10)."""
        near = _together(stage, near)
        moved, at = self._terms.tensors[tensor], self._placement.at
        if not moved.readers or (moved.source >= 0 and len(near) == len(self._placement.stages)):
            return 0
        key = (tensor, stage, near)
        if key not in self._far:
            far = self._placement.boolean(f"tensor {tensor} into {stage} past {near}")
            made = sum(at[moved.source][k] for k in near) if moved.source >= 0 else 0
            for reader in moved.readers:
                self._placement.model.add(far >= at[reader][stage] - made)
            self._far[key] = far
        return self._far[key]

    def sends(self, tensor: int, stage: int, near: Iterable[int] = ()) -> Expression:
        """How often `stage` sends a tensor that it makes: once to every stage but those `near`
        that reads it, and once to the launcher if it is a result."""
        near = _together(stage, near)
        moved = self._terms.tensors[tensor]
        if moved.source < 0:
            return 0
        result = int(moved.is_result) * self._placement.at[moved.source][stage]
        beyond = [k for k in self._placement.stages if k not in near]
        most = min(len(moved.readers), len(beyond))
        if most == 0:
            return result
        if most == 1 and near == (stage,) and not moved.is_result:
            return self.leaves(tensor, stage)
        key = (tensor, stage, near)
        if key not in self._copies:
            self._copies[key] = self._copied(tensor, stage, near, beyond, most)
        return result + self._copies[key]

    def _copied(
        self, tensor: int, stage: int, near: tuple[int, ...], beyond: Sequence[int], most: int
    ) -> Expression:
        moved, placement = self._terms.tensors[tensor], self._placement
        made = placement.at[moved.source][stage]
        copies = placement.integer(0, most, f"tensor {tensor} from {stage} past {near}")
        for reader in moved.readers:
            placement.model.add(copies >= made - sum(placement.at[reader][k] for k in near))
        if most > 1:
            read = sum(self.reads(tensor, k) for k in beyond)
            placement.model.add(copies >= read - most * (1 - made))
        return copies

    def leaves(self, tensor: int, stage: int) -> Expression:
        """1 if `stage` makes a tensor that it sends to anyone."""
        moved, at = self._terms.tensors[tensor], self._placement.at
        if moved.source < 0:
            return 0
        if moved.is_result:
            return at[moved.source][stage]
        if (tensor, stage) not in self._leaving:
            leaving = self._placement.boolean(f"tensor {tensor} leaves {stage}")
            for reader in moved.readers:
                self._placement.model.add(leaving >= at[moved.source][stage] - at[reader][stage])
            self._leaving[tensor, stage] = leaving
        return self._leaving[tensor, stage]


def _together(stage: int, near: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({stage, *near}))
