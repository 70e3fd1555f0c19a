"""Every operator computes what ONNX says, with all forms of attributes that ONNX itself tests."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest

import cnn
from cnn.operators.standard import STANDARD_DOMAINS
from cnn.simplify.fold import fold
from cnn.simplify.graph import OperatorGraph
from tests.cnn.models import run, save
from tests.cnn.node_tests import NodeTest, agrees, node_tests

PINNED = "1.23.2"
"""The version of onnx whose tests are counted here; others have more, or fewer."""

REFUSED = {
    "open axes": 17,
    "optional inputs": 3,
    "random numbers": 6,
    "a custom operator": 11,
    "an old operator set": 3,
    "outputs that no input reaches": 13,
    "another operator set": 11,
    "contradicting shapes": 1,
}
"""How many tests are refused as they are, and why."""

REFUSED_WITH_CONSTANTS = {
    "open axes": 17,
    "a custom operator": 11,
    "another operator set": 8,
    "contradicting shapes": 2,
    "outputs that no input reaches": 2,
}
"""The same with all inputs but the first as constants; of two, all that is left has no elements."""

REASONS = {
    r"is open; write its size": "open axes",
    r"is of the type optional": "optional inputs",
    r"draws random numbers": "random numbers",
    r"is a custom operator": "a custom operator",
    r"operator set \d+ is too old": "an old operator set",
    r"no output of the model depends": "outputs that no input reaches",
    r"does not use ONNX's own": "another operator set",
    r"contradict each other|cannot take tensors of": "contradicting shapes",
}

pytestmark = pytest.mark.slow


@cache
def every_test() -> tuple[NodeTest, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some expect overflows, and NumPy says so
        return tuple(node_tests())


def outcome(test: NodeTest, proto: onnx.ModelProto, directory: Path) -> str:
    """Read, simplify, cut and run the model: `agrees`, or what kept it from that."""
    file = save(proto, directory)
    try:
        model = cnn.read(file)
    except cnn.ModelError as error:
        found = [reason for text, reason in REASONS.items() if re.search(text, str(error))]
        return found[0] if found else str(error)
    network = model.network
    whole = model.cut(network.layer, network.inputs, network.outputs, directory)
    try:
        made = run(whole.graph, {name: test.inputs[name] for name in network.inputs})
    except Exception as error:  # noqa: BLE001 - it has no base class for its own
        return "the engine cannot" if fails(test, proto, file) else f"it runs no more: {error}"
    results = [*made, *model.constant_outputs.values()]
    if all(agrees(x, test.outputs[name]) for x, name in zip(results, model.outputs, strict=True)):
        return "agrees"
    by_engine = run(file, {x.name: test.inputs[x.name] for x in proto.graph.input}, model.outputs)
    same = all(agrees(x, y) for x, y in zip(results, by_engine, strict=True))
    return "the engine differs" if same else "disagrees"


def fails(test: NodeTest, proto: onnx.ModelProto, file: Path) -> bool:
    """Whether the engine cannot run the original, or an axis has length 0, which is read as 1."""
    given = {x.name: test.inputs[x.name] for x in proto.graph.input}
    try:
        run(file, given)
    except Exception:  # noqa: BLE001
        return True
    return any(0 in array.shape for array in given.values())


@pytest.mark.parametrize(
    ("form", "refused", "fewest"),
    [
        ("as it is", REFUSED, 1140),
        pytest.param("constants", REFUSED_WITH_CONSTANTS, 815, marks=pytest.mark.further),
    ],
)
def test_every_operator_computes_what_onnx_says(
    form: str, refused: dict[str, int], fewest: int, tmp_path: Path
) -> None:
    outcomes: dict[str, str] = {}
    for test in every_test():
        names = list(test.inputs)[1:] if form == "constants" else []
        if names or form == "as it is":
            outcomes[test.name] = outcome(test, test.with_constants(names), tmp_path)
    allowed = {"agrees", "the engine cannot", "the engine differs", *refused}
    assert {name: x for name, x in outcomes.items() if x not in allowed} == {}
    counts = Counter(outcomes.values())
    assert counts["agrees"] >= fewest
    if onnx.__version__ == PINNED:
        assert {reason: counts[reason] for reason in REASONS.values() if counts[reason]} == refused


def test_every_operator_that_is_folded_gives_what_onnx_says() -> None:
    folded = 0
    for test in every_test():
        if not any(x.domain in STANDARD_DOMAINS for x in test.model.opset_import):
            continue
        graph = OperatorGraph(test.with_constants(list(test.inputs)), dict(test.inputs))
        fold(graph)
        for name in test.outputs.keys() & graph.constants.keys():
            assert agrees(graph.constants[name], test.outputs[name]), test.name
            folded += 1
    assert folded >= 1300
