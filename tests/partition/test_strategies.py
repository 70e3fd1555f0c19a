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
from tests.partition.strategy_contract import StrategyContract, equal


class TestManual(StrategyContract):
    strategy = Manual()

    def pins(self, network: Network, devices: tuple[Device, ...]) -> Mapping[str, str]:
        # One layer on the first device, the rest on the last.
        names = [layer.name for layer in network.layers]
        return dict.fromkeys(names, devices[-1].name) | {names[0]: devices[0].name}

    def test_layers_without_a_device_are_named(self) -> None:
        with pytest.raises(PartitionError, match="'l1', 'l2', 'l3' and 1 more have none"):
            self.strategy.solve(Problem(chain(1, 1, 1, 1, 1), equal(2), {"l0": "d0"}))


class TestSequential(StrategyContract):
    strategy = Sequential()

    def test_every_device_gets_a_run_of_layers(self) -> None:
        numbers, fits = contiguous_cut(Problem(residual(8), equal(4)))
        changes = (numbers[1:] != numbers[:-1]).sum()
        assert fits
        assert changes == len(set(numbers.tolist())) - 1 == 3

    def test_pins_that_interleave_are_refused(self) -> None:
        pins = {"l0": "d0", "l1": "d1", "l2": "d0"}
        with pytest.raises(PartitionError, match="no contiguous cut respects these pins: 'l0'"):
            self.strategy.solve(Problem(chain(1, 1, 1), equal(2), pins))

    def test_an_overfull_cut_is_admitted(self) -> None:
        network = chain(1, 1, weights=[10**8, 1])
        _, fits = contiguous_cut(Problem(network, equal(2, 100 * 10**6)))
        solution = self.strategy.solve(Problem(network, equal(2, 100 * 10**6)))
        assert not fits
        assert "no contiguous cut was found to fit" in solution.explanation
