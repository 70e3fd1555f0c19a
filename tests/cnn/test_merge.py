"""Networks merged into one compute what each computes alone, whatever operator sets they have."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

import cnn
from cnn.merge import merge, part_name
from tests.cnn.models import FLOAT, convolution, model, node, run, save, value, weight
from tests.networks import save as save_drawn
from tests.networks import small_models


@pytest.mark.slow
@given(small_models(max_steps=8), small_models(max_steps=8))
@settings(max_examples=20)
def test_a_merged_network_computes_what_its_parts_compute(
    left: onnx.ModelProto, right: onnx.ModelProto
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for name, proto in (("left", left), ("right", right)):
            (Path(folder) / name).mkdir()
            path = save_drawn(proto, Path(folder) / name)
            parts.append(cnn.read(path).with_name(name))
        try:
            merged = merge(parts)
        except cnn.ModelError:
            with pytest.raises(cnn.ModelError, match="cannot be converted to"):
                merge(parts)
            return
        frame = _frame(merged.network)
        results = _results(merged, frame, Path(folder))
        for part in parts:
            name = part.network.name
            own = {inner: frame[part_name(name, inner)] for inner in part.network.inputs}
            expected = _results(part, own, Path(folder))
            for tensor in part.network.outputs:
                np.testing.assert_allclose(
                    results[part_name(name, tensor)], expected[tensor], rtol=1e-4, atol=1e-5
                )


def test_every_name_begins_with_its_networks(tmp_path: Path) -> None:
    merged = _two(tmp_path)
    network = merged.network
    assert network.name == "a+b"
    assert [layer.name for layer in network.layers] == ["a/c", "b/c"]
    assert network.inputs == ("a/x", "b/x")
    assert network.outputs == ("a/y", "b/y")
    assert sorted(network.weights) == ["a/w", "b/w"]
    assert [part.network.name for part in merged.parts] == ["a", "b"]


def test_one_network_stays_as_it_is(tmp_path: Path) -> None:
    alone = cnn.read(save(convolution(), tmp_path))
    assert merge([alone]) is alone


def test_the_digest_is_that_of_all(tmp_path: Path) -> None:
    first, same = _two(tmp_path), _two(tmp_path)
    other = merge([cnn.read(tmp_path / "a.onnx"), _read(convolution((1, 3, 9, 9)), tmp_path, "b")])
    assert first.digest == same.digest != other.digest


def test_originals_are_those_of_the_parts(tmp_path: Path) -> None:
    merged = _two(tmp_path)
    frame = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    for part in merged.parts:
        (result,) = run(part.write_original(tmp_path / "original"), {"x": frame})
        assert result.shape == (1, 4, 8, 8)
    with pytest.raises(
        cnn.ModelError, match=r"a\+b was merged from several models; write the original"
    ):
        merged.write_original(tmp_path)


def test_networks_of_one_name_are_refused(tmp_path: Path) -> None:
    one = _read(convolution(), tmp_path, "a")
    with pytest.raises(cnn.ModelError, match="two networks are called 'a'; give each its own name"):
        merge([one, one])
    assert merge([one, one.with_name("again")]).network.name == "a+again"


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(cnn.ModelError, match="no network to merge"):
        merge([])


@pytest.mark.parametrize(
    ("older", "operator"),
    [
        (node("Pad", ["y"], ["z"], "last", pads=[0, 0, 1, 1, 0, 0, 1, 1]), "Pad"),
        (node("Clip", ["y"], ["z"], "last", min=0.0, max=6.0), "Clip"),
        (node("ReduceMean", ["y"], ["z"], "last", axes=[2, 3]), "ReduceMean"),
        (node("Softmax", ["y"], ["z"], "last", axis=3), "Softmax"),
    ],
)
def test_an_older_operator_set_is_brought_to_the_newer(
    tmp_path: Path, older: onnx.NodeProto, operator: str
) -> None:
    old = _read(convolution((1, 3, 8, 8), older, opset=9), tmp_path, "old")
    merged = merge([old, _read(convolution(opset=20), tmp_path, "new")])
    assert merged.network.layer["old/last"].operator == operator
    frame = _frame(merged.network)
    expected = _results(old, {"x": frame["old/x"]}, tmp_path)
    result = _results(merged, frame, tmp_path)
    np.testing.assert_allclose(result["old/z"], expected["z"], rtol=1e-5, atol=1e-6)
    assert [x.version for x in merged.operators.opset_import] == [20]


def test_what_cannot_be_brought_to_it_is_reported(tmp_path: Path) -> None:
    # Until operator set 13 it worked on all axes from `axis` on at once.
    flattening = node("Softmax", ["y"], ["z"], "scores", axis=1)
    old = _read(convolution((1, 3, 8, 8), flattening, opset=9), tmp_path, "old")
    with pytest.raises(cnn.ModelError) as caught:
        merge([old, _read(convolution(opset=20), tmp_path, "new")])
    assert str(caught.value) == (
        "old: layer 'scores' (Softmax) is written for operator set 9 of ONNX and cannot be "
        "converted to 20, which another network uses; export old for operator set 20"
    )


def test_networks_without_anything_in_common_may_be_merged(tmp_path: Path) -> None:
    nodes = [node("MatMul", ["v", "m"], ["s"], "dense")]
    vector = model(nodes, [value("v", (1, 6), FLOAT)], [value("s")], [weight("m", 6, 2)])
    merged = merge([_read(vector, tmp_path, "vector"), _read(convolution(), tmp_path, "image")])
    results = _results(merged, _frame(merged.network), tmp_path)
    assert results["vector/s"].shape == (1, 2)
    assert results["image/y"].shape == (1, 4, 8, 8)


def _read(proto: onnx.ModelProto, folder: Path, name: str) -> cnn.Model:
    return cnn.read(save(proto, folder, f"{name}.onnx"))


def _two(folder: Path) -> cnn.Model:
    return merge([_read(convolution(), folder, "a"), _read(convolution(), folder, "b")])


def _frame(network: cnn.Network) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        name: generator.standard_normal(network.tensors[name].shape).astype(np.float32)
        for name in network.inputs
    }


def _results(built: cnn.Model, frame: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """What a cut of all layers computes."""
    network = built.network
    made = [name for name in network.outputs if name in network.producer]
    subnet = built.cut(list(network.layer), network.inputs, made, folder)
    onnx.checker.check_model(str(subnet.graph), full_check=True)
    return {**frame, **dict(zip(made, run(subnet.graph, frame), strict=True))}
