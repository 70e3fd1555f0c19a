"""The strategies that need no genetic search."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from partition.strategies.contiguous.sequential import Sequential, contiguous_cut
from partition.strategies.manual import Manual
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import ContiguousContract, StrategyContract, equal


class TestManual(StrategyContract):
    strategy = Manual()

    def pins(self, network: Network, devices: tuple[Device, ...]) -> Mapping[str, str]:
        # One layer on the first device, the rest on the last.
        names = [layer.name for layer in network.layers]
        return dict.fromkeys(names, devices[-1].name) | {names[0]: devices[0].name}

    def test_layers_without_a_device_are_named(self) -> None:
        with pytest.raises(PartitionError, match="'l1', 'l2', 'l3' and 1 more have none"):
            self.strategy.solve(Problem(chain(1, 1, 1, 1, 1), equal(2), {"l0": "d0"}))


class TestSequential(ContiguousContract):
    strategy = Sequential()

    def test_every_device_gets_a_run_of_layers(self) -> None:
        numbers, fits = contiguous_cut(Problem(residual(8), equal(4)))
        changes = (numbers[1:] != numbers[:-1]).sum()
        assert fits
        assert changes == len(set(numbers.tolist())) - 1 == 3
