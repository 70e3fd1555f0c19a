"""What a device holds: weights, live activations, channels, engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cnn.network import Layer, Network, Tensor
from csdf.conversion.from_network import Phase, convert
from csdf.conversion.skew import Pipeline
from partition.devices import ONNX_RUNTIME, Device, EngineOverhead
from partition.errors import DoesNotFitError
from partition.planner import make_plan
from partition.prediction.memory import channel_bytes, live_bytes
from partition.pricing.memory_budget import LAYER_BYTES, START_UP_BYTES, packing_bytes
from tests.partition.networks import chain


def network(
    reads: dict[str, list[str]], sizes: dict[str, int], outputs: tuple[str, ...]
) -> Network:
    """Layers that each make a tensor of their own name, `sizes` in bytes."""
    return Network(
        "example",
        tuple(Layer(name, "Op", tuple(read), (name,)) for name, read in reads.items()),
        {name: Tensor(name, (size,), "uint8") for name, size in sizes.items()},
        {},
        ("x",),
        outputs,
    )


def test_a_chain_holds_one_layers_input_and_output_at_a_time() -> None:
    net = network({"a": ["x"], "b": ["a"], "c": ["b"]}, {"x": 10, "a": 30, "b": 5, "c": 1}, ("c",))
    phase = Phase("d/0", "d", 0, ("a", "b", "c"), ("x",), ("c",))
    assert live_bytes(net, phase) == 10 + 30


def test_a_skip_is_held_until_it_is_read() -> None:
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["b"], "d": ["c", "a"]},
        {"x": 1, "a": 10, "b": 20, "c": 30, "d": 1},
        ("d",),
    )
    phase = Phase("d/0", "d", 0, ("a", "b", "c", "d"), ("x",), ("d",))
    assert live_bytes(net, phase) == 10 + 20 + 30


def test_an_output_of_the_phase_is_held_to_its_end() -> None:
    net = network({"a": ["x"], "b": ["a"], "c": ["b"]}, {"x": 1, "a": 50, "b": 5, "c": 7}, ("c",))
    phase = Phase("d/0", "d", 0, ("a", "b", "c"), ("x",), ("a", "c"))
    assert live_bytes(net, phase) == 50 + 5 + 7


def test_a_sum_and_an_activation_write_over_a_tensor_that_nothing_else_reads() -> None:
    sizes = {"x": 2, "a": 10, "s": 10, "r": 10}
    net = network({"a": ["x"], "s": ["a", "x"], "r": ["s"]}, sizes, ("r",))
    kinds = {"a": "Conv", "s": "Add", "r": "Relu"}
    net = replace(
        net, layers=tuple(replace(each, operator=kinds[each.name]) for each in net.layers)
    )
    layers = ("a", "s", "r")
    assert live_bytes(net, Phase("d/0", "d", 0, layers, ("x",), ("r",))) == 2 + 10
    assert live_bytes(net, Phase("d/0", "d", 0, layers, ("x",), ("s", "r"))) == 10 + 10
    assert live_bytes(net, Phase("d/0", "d", 0, layers, ("x",), ("a", "r"))) == 2 + 10 + 10


def test_a_channel_is_held_at_both_ends_and_once_if_it_is_local() -> None:
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["b", "a"]}, {"x": 1, "a": 10, "b": 100, "c": 1}, ("c",)
    )
    dataflow = convert(net, {"a": "here", "b": "there", "c": "here"})
    capacity = {flow.name: 2 for flow in dataflow.flows}
    capacity["a → here"] = 3
    held = channel_bytes(dataflow, Pipeline({}, capacity, 0), ["here", "there"])
    # x comes in (2 × 1), a stays and goes (the larger of 3 and 2, × 10), b comes in, c goes out.
    assert held["here"] == 2 * 1 + 3 * 10 + 2 * 100 + 2 * 1
    assert held["there"] == 2 * 10 + 2 * 100


def test_a_tensor_sent_to_several_devices_is_kept_once() -> None:
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["a"]}, {"x": 1, "a": 10, "b": 1, "c": 1}, ("b", "c")
    )
    dataflow = convert(net, {"a": "one", "b": "two", "c": "three"})
    capacity = {flow.name: 2 for flow in dataflow.flows}
    held = channel_bytes(dataflow, Pipeline({}, capacity, 0), ["one"])
    assert held["one"] == 2 * 1 + 2 * 10


def test_where_the_producer_has_places_of_its_own_either_end_holds_its_own() -> None:
    net = network({"a": ["x"], "b": ["a"]}, {"x": 1, "a": 10, "b": 1}, ("b",))
    dataflow = convert(net, {"a": "one", "b": "two"})
    pipeline = Pipeline({}, {flow.name: 5 for flow in dataflow.flows}, 0, {"a → two": 2})
    held = channel_bytes(dataflow, pipeline, ["one", "two"])
    assert held == {"one": 5 * 1 + 2 * 10, "two": 3 * 10 + 5 * 1}


def test_a_plan_predicts_the_parts_of_each_device() -> None:
    net = chain(1, 1, elements=1000, weights=[5000, 0])
    devices = (Device("a"), Device("b"), Device("idle"))
    plan = make_plan(net, "", devices, {"l0": "a", "l1": "b"}, strategy="any", explanation="")
    assert plan.memory["a"].weights_bytes == 4 * 5000
    assert plan.memory["a"].activations_bytes == 4 * 2000
    assert plan.memory["a"].eq2_bytes == 4 * 7000
    assert plan.memory["b"].weights_bytes == 0
    incoming = next(c.capacity_frames for c in plan.channels if c.target_device == "b")
    outgoing = next(c.capacity_frames for c in plan.channels if c.source_device == "b")
    assert plan.memory["b"].channels_bytes == 4000 * (incoming + outgoing)
    assert plan.memory["idle"].total_bytes == START_UP_BYTES


def products(*rows_and_bytes: tuple[int, int], operator: str = "MatMul") -> Network:
    """Products of matrices one behind the other, each with so many rows and bytes of weights."""
    names = [f"l{number}" for number in range(len(rows_and_bytes))]
    tensors = {
        name: Tensor(name, (rows, 8), "float32")
        for name, (rows, _) in zip(names, rows_and_bytes, strict=True)
    }
    return Network(
        "example",
        tuple(
            Layer(name, operator, (before,), (name,), (f"w {name}",))
            for before, name in zip(["x", *names], names, strict=False)
        ),
        {"x": Tensor("x", (1, 8), "float32"), **tensors},
        {
            f"w {name}": Tensor(f"w {name}", (size // 4,), "float32")
            for name, (_, size) in zip(names, rows_and_bytes, strict=True)
        },
        ("x",),
        (names[-1],),
    )


def test_the_largest_matrix_is_there_twice_while_it_is_packed() -> None:
    net = products((5, 100), (5, 300), (5, 200))
    assert packing_bytes(net, ("l0", "l1", "l2")) == 2 * 300
    assert packing_bytes(net, ("l0", "l2")) == 2 * 200


def test_nothing_is_packed_for_single_rows_unless_another_product_has_more() -> None:
    net = products((1, 300), (5, 200))
    assert packing_bytes(net, ("l0",)) == 0
    assert packing_bytes(net, ("l0", "l1")) == 2 * 300


def test_a_product_of_one_row_is_packed_beside_what_is_packed_anyway() -> None:
    net = products((1, 300), (1, 200))
    first, second = net.layers
    net = replace(net, layers=(first, replace(second, operator="ConvTranspose")))
    assert packing_bytes(net, ("l0", "l1")) == 2 * 300


def test_recurrent_weights_are_packed_and_those_of_convolutions_are_not() -> None:
    assert packing_bytes(products((1, 300), operator="LSTM"), ("l0",)) == 2 * 300
    assert packing_bytes(products((5, 300), operator="Conv"), ("l0",)) == 0


def test_loading_a_matrix_may_take_more_than_running_and_a_refusal_says_so() -> None:
    size = 30_000_000
    net = products((5, size))
    plan = make_plan(net, "", (Device("a"),), {"l0": "a"}, strategy="any", explanation="")
    assert plan.memory["a"].total_bytes == START_UP_BYTES + 2 * size
    small = Device("a", memory_bytes=START_UP_BYTES + 2 * size - 1)
    with pytest.raises(DoesNotFitError, match=r"largest matrix and its packed copy 60\.0 MB"):
        make_plan(net, "", (small,), {"l0": "a"}, strategy="any", explanation="")


def test_a_processor_holds_half_precision_as_float32_and_an_accelerator_as_it_is() -> None:
    net = Network(
        "example",
        (Layer("l", "Conv", ("x",), ("y",), ("w",)),),
        {name: Tensor(name, (10,), "float16") for name in "xy"},
        {"w": Tensor("w", (1000,), "float16")},
        ("x",),
        ("y",),
    )
    held = [
        make_plan(net, "", (device,), {"l": "d"}, strategy="any", explanation="").memory["d"]
        for device in (Device("d"), Device("d", wire_is_free=True))
    ]
    assert [one.weights_bytes for one in held] == [4000, 2000]
    assert [one.activations_bytes for one in held] == [80, 40]


def test_every_layer_adds_its_kernel() -> None:
    few, many = (
        make_plan(
            chain(*[1] * count, elements=1), "", (Device("a"),),
            {f"l{number}": "a" for number in range(count)}, strategy="any", explanation="",
        ).memory["a"].engine_bytes
        for count in (1, 101)
    )  # fmt: skip
    assert many - few == 100 * LAYER_BYTES


def test_an_engine_that_takes_more_for_a_layer_or_a_subnet_counts_where_it_computes() -> None:
    heavy = EngineOverhead(idle_bytes=40_000_000, subnet_bytes=1_000_000, layer_bytes=75_000)
    usual, more = (
        make_plan(
            chain(*[1] * 10, elements=1), "", (Device("a", engine_overhead=own), Device("b")),
            {f"l{number}": "b" if number == 5 else "a" for number in range(10)},
            strategy="any", explanation="",
        )
        for own in (ONNX_RUNTIME, heavy)
    )  # fmt: skip
    phases = sum(phase.device == "a" for phase in usual.phases)
    assert phases == 2
    extra = more.memory["a"].engine_bytes - usual.memory["a"].engine_bytes
    assert extra == 6_000_000 + 2 * 950_000 + 9 * 68_000
    assert more.memory["b"] == usual.memory["b"]


def test_packed_whole_numbers_stay_in_memory_while_others_are_packed() -> None:
    size = 20_000_000
    net = Network(
        "example",
        (Layer("c", "Conv", ("x",), ("y",), ("q",)), Layer("m", "MatMul", ("y",), ("z",), ("w",))),
        {name: Tensor(name, (5, 8), "float32") for name in "xyz"},
        {"q": Tensor("q", (size,), "int8"), "w": Tensor("w", (size // 4,), "float32")},
        ("x",),
        ("z",),
    )
    plan = make_plan(net, "", (Device("a"),), dict.fromkeys("cm", "a"), strategy="", explanation="")
    assert plan.memory["a"].packing_bytes == size + 2 * size
