"""Names are whatever an exporter writes: the same twice, none, with slashes, spaces, in any
language, or as long as a page."""

from __future__ import annotations

from pathlib import Path

import pytest

import cnn
from tests.cnn.models import constant, graph, model, node, save, value, weight
from tests.cnn.whole import agrees

ODD = {
    "slashes": "/model/backbone/conv.0/../Conv_output_0",
    "spaces": " a tensor with  spaces ",
    "another language": "слой/層/couche-é",
    "symbols": "a:b\"c'd%s{0}\\n$HOME;|&<>*?#@!~`^[]",
    "a control character": "bell\x07\ttab",
    "long": "n" * 5000,
    "dots": "..",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=list(ODD))
def test_a_name_may_be_anything(odd: str, tmp_path: Path) -> None:
    nodes = [
        node("Conv", [f"{odd}x", f"{odd}w"], [f"{odd}c"], odd),
        node("Relu", [f"{odd}c"], [f"{odd}y"], f"{odd}2"),
    ]
    ends = [value(f"{odd}x", (1, 3, 4, 4))], [value(f"{odd}y")]
    found = cnn.read(save(model(nodes, *ends, [weight(f"{odd}w", 4, 3, 1, 1)]), tmp_path))
    if len(odd) < 1000:
        assert [layer.name for layer in found.network.layers] == [odd, f"{odd}2"]
    agrees(found, tmp_path)


def test_a_name_that_is_too_long_for_messages_is_shortened(tmp_path: Path) -> None:
    """Those that differ at their end only stay apart, in a branch too."""
    one, other = "n" * 5000 + "1", "n" * 5000 + "2"
    branch = graph([node("Neg", [one], [f"{one}b"], f"{one}x")], "b", [], [value(f"{one}b")])
    nodes = [
        node("Relu", ["x"], [one], one),
        node("Exp", ["x"], [other], other),
        node("If", ["yes"], [f"{other}y"], f"{other}if", then_branch=branch, else_branch=branch),
        node("Add", [f"{other}y", other], ["z"]),
    ]
    proto = model(nodes, [value("x", (1, 2))], [value("z")], [constant("yes", True, bool)])
    found = cnn.read(save(proto, tmp_path), outputs=["z", one])
    assert all(len(name) <= 1000 for name in (*found.network.layer, *found.network.tensors))
    assert found.outputs[1].startswith("nnn")
    agrees(found, tmp_path)


def test_layers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    nodes = [
        node("Neg", ["x"], ["a"], "same"),
        node("Relu", ["a"], ["b"], "same"),
        node("Neg", ["b"], ["c"], "same#2"),
        node("Abs", ["c"], ["d"], "same"),
        node("Exp", ["d"], ["e"]),
        node("Neg", ["e"], ["y"]),
    ]
    found = cnn.read(save(model(nodes, [value("x", (1, 2))], [value("y")]), tmp_path))
    names = [layer.name for layer in found.network.layers]
    assert names == ["same", "same#3", "same#2", "same#4", "e", "y"]
    agrees(found, tmp_path)


def test_so_are_those_of_a_branch(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": graph(
            [node("Neg", ["a"], ["b"], "same"), node("Relu", ["b"], ["c"], "same")],
            name,
            [],
            [value("c")],
        )
        for name in ("then", "else")
    }
    nodes = [node("Abs", ["x"], ["a"], "same"), node("If", ["yes"], ["y"], "same", **branches)]
    proto = model(nodes, [value("x", (1, 2))], [value("y")], [constant("yes", True, bool)])
    found = cnn.read(save(proto, tmp_path))
    assert len({layer.name for layer in found.network.layers}) == 3
    agrees(found, tmp_path)
