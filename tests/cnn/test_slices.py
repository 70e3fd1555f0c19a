"""Whatever is sliced, and however, computes what the whole computes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnn
from cnn.errors import ModelError
from cnn.rewrite.rewrites import Slices
from tests.agreement.comparison import LIMIT, agreements, random_frame, random_partition
from tests.cnn.models import convolution, model, node, value, weight
from tests.cnn.models import save as save_written
from tests.effort import examples
from tests.networks import save, small_models
from tests.rewriting import slicings


@examples(30)
@given(proto=small_models(max_steps=30), data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_slices_compute_what_the_layers_compute(
    proto: onnx.ModelProto, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    model = cnn.read(save(proto, tmp_path))
    rewrites = data.draw(slicings(model))
    rewritten = model.rewritten(rewrites)
    one_by_one = model
    for rewrite in rewrites:
        one_by_one = one_by_one.rewritten([rewrite])
    assert one_by_one.network == rewritten.network
    partition = random_partition(rewritten.network, 3, seed)
    (found,) = agreements(rewritten, [partition], random_frame(model.network, seed))
    assert found.crossing <= LIMIT


@pytest.fixture
def chain(tmp_path: Path) -> cnn.Model:
    """x → c (4 filters) → r (Relu) → p (GlobalAveragePool) → f (Flatten)."""
    proto = convolution(
        (1, 3, 8, 8),
        node("Relu", ["y"], ["z"], "r"),
        node("GlobalAveragePool", ["z"], ["p"], "p"),
        node("Flatten", ["p"], ["f"], "f"),
    )
    return cnn.read(save_written(proto, tmp_path))


def test_each_slice_is_a_layer_with_its_share_of_everything(chain: cnn.Model) -> None:
    network = chain.rewritten([Slices("c", (1, 3))]).network
    assert list(network.layer) == ["c[1/2]", "c[2/2]", "r", "p", "f"]
    first, second = network.layers[:2]
    assert first.part_of == second.part_of == "c"
    assert [network.tensors[layer.outputs[0]].shape[1] for layer in (first, second)] == [1, 3]
    assert [network.weight_bytes((x.name,)) for x in (first, second)] == [108, 324]
    assert second.macs == 3 * first.macs
    assert first.macs + second.macs == chain.network.layer["c"].macs


def test_a_reader_of_the_whole_reads_all_parts(chain: cnn.Model) -> None:
    network = chain.rewritten([Slices("c", (1, 3))]).network
    assert network.layer["r"].inputs == ("y[1/2]", "y[2/2]")


def test_slices_in_the_same_way_read_one_part_each_in_whatever_order(chain: cnn.Model) -> None:
    rewrites = [Slices(layer, (1, 3)) for layer in "crp"]
    for order in itertools.permutations(rewrites):
        network = chain.rewritten(order).network
        assert network.layer["r[1/2]"].inputs == ("y[1/2]",)
        assert network.layer["p[2/2]"].inputs == ("z[2/2]",)
        assert network.layer["f"].inputs == ("p[1/2]", "p[2/2]")


def test_slices_in_another_way_read_the_parts_that_they_need(chain: cnn.Model) -> None:
    network = chain.rewritten([Slices("r", (2, 2)), Slices("c", (1, 2, 1))]).network
    assert network.layer["r[1/2]"].inputs == ("y[1/3]", "y[2/3]")
    assert network.layer["r[2/2]"].inputs == ("y[2/3]", "y[3/3]")


def test_a_slice_can_be_sliced_again(chain: cnn.Model) -> None:
    network = chain.rewritten([Slices("c", (1, 3)), Slices("c[2/2]", (2, 1))]).network
    assert list(network.layer)[:3] == ["c[1/2]", "c[2/2][1/2]", "c[2/2][2/2]"]
    assert {layer.part_of for layer in network.layers[:3]} == {"c"}
    assert network.layer["r"].inputs == ("y[1/2]", "y[2/2][1/2]", "y[2/2][2/2]")


def test_one_slice_is_the_layer_itself(chain: cnn.Model) -> None:
    assert chain.rewritten([Slices("c", (4,))]).network == chain.network


def test_an_output_of_the_network_is_joined_by_a_layer(tmp_path: Path) -> None:
    chain = cnn.read(save_written(convolution((1, 3, 8, 8)), tmp_path))
    sliced = chain.rewritten([Slices("c", (2, 2))])
    assert sliced.network.outputs == ("y",)
    last = sliced.network.layers[-1]
    assert (last.operator, last.inputs, last.outputs) == ("Concat", ("y[1/2]", "y[2/2]"), ("y",))
    assert set(sliced.slice_channels()) == {"c[1/2]", "c[2/2]"}


def test_no_weight_is_copied(chain: cnn.Model) -> None:
    sliced = chain.rewritten([Slices("c", (1, 3))])
    whole = chain._weights["w"]
    assert all(np.shares_memory(part, whole) for part in sliced._weights.values())
    assert sum(part.nbytes for part in sliced._weights.values()) == whole.nbytes


def test_layers_that_share_a_weight_share_its_parts(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"], "r"),
        node("Conv", ["x", "w"], ["ya"], "ca"),
        node("Conv", ["r", "w"], ["yb"], "cb"),
        node("Add", ["ya", "yb"], ["z"], "sum"),
    ]
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("z")], [weight("w", 4, 3, 1, 1)])
    shared = cnn.read(save_written(proto, tmp_path))
    sliced = shared.rewritten([Slices("ca", (2, 2)), Slices("cb", (2, 2))]).network
    assert sliced.layer["ca[1/2]"].weights == sliced.layer["cb[1/2]"].weights
    assert len(sliced.weights) == 2


def test_the_digest_stays_that_of_the_model_as_it_was_read(chain: cnn.Model) -> None:
    assert chain.rewritten([Slices("c", (1, 3))]).digest == chain.digest


@pytest.mark.parametrize(
    ("rewrites", "sentence"),
    [
        ([Slices("d", (1, 3))], "has no layer 'd' to rewrite"),
        ([Slices("c", (1, 2))], r"has 4 output channels, and its slices have 1 \+ 2 = 3"),
        ([Slices("f", (1, 3))], r"'f' \(Flatten\) cannot be computed in slices of channels"),
        ([Slices("c", (1, 3)), Slices("c", (1, 3))], "has no layer 'c' to rewrite"),
    ],
)
def test_what_cannot_be_sliced_is_reported(
    chain: cnn.Model, rewrites: list[Slices], sentence: str
) -> None:
    with pytest.raises(ModelError, match=sentence):
        chain.rewritten(rewrites)


def test_slices_across_groups_are_refused(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], "c", group=2)]
    proto = model(nodes, [value("x", (1, 2, 8, 8))], [value("y")], [weight("w", 4, 1, 1, 1)])
    grouped = cnn.read(save_written(proto, tmp_path))
    with pytest.raises(ModelError, match="groups of 2 output channels, and each of its slices 1 "):
        grouped.rewritten([Slices("c", (1, 2, 1))])


def test_names_that_are_taken_are_refused(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"], "c[1/2]"))
    with pytest.raises(ModelError, match=r"has a layer 'c\[1/2\]' already"):
        cnn.read(save_written(proto, tmp_path)).rewritten([Slices("c", (2, 2))])
