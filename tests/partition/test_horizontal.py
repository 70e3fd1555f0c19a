"""Every layer in slices, slice i on device i."""

from __future__ import annotations

from partition.devices import Device
from partition.strategies.rows.horizontal import Horizontal
from tests.partition.rewriting_contract import RewritingContract, residual_model
from tests.partition.strategy_contract import equal


class TestHorizontal(RewritingContract):
    strategy = Horizontal()

    def test_every_device_holds_its_share_of_every_layers_weights(self) -> None:
        network = self.residual(3)
        solution = self.solve(network, equal(4))
        assert solution.network is not None
        for layer in network.layers:
            if layer.weights and layer.operator == "Conv":
                parts = [x for x in solution.network.layers if x.part_of == layer.name]
                assert [solution.assignment[part.name] for part in parts] == [
                    "d0",
                    "d1",
                    "d2",
                    "d3",
                ]
                sizes = {solution.network.weight_bytes((part.name,)) for part in parts}
                assert sizes == {network.weight_bytes((layer.name,)) // 4}

    def test_slices_are_as_large_as_their_devices_are_fast(self) -> None:
        network = self.residual(2)
        devices = (
            Device("slow", macs_per_s=1e9, memory_bytes_per_s=1e9),
            Device("fast", macs_per_s=3e9, memory_bytes_per_s=3e9),
        )
        solution = self.solve(network, devices)
        assert solution.rewrites[0].channels == (4, 12)

    def test_what_cannot_be_sliced_is_where_its_input_is(self) -> None:
        network = self.residual(2)
        solution = self.solve(network, equal(3), {"l10": "d1"})
        assert solution.assignment["l11"] == "d1"

    def test_more_devices_than_channels_leave_some_without_a_slice(self) -> None:
        solution = self.solve(residual_model(1).network, equal(12))
        assert solution.network is not None
        classes = [x for x in solution.network.layers if x.name.endswith("/10]")]
        assert len({solution.assignment[layer.name] for layer in classes}) == 10
