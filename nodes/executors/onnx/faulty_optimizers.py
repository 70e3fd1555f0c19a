"""Names the optimisers of ONNX Runtime that must be switched off for a model.

Each entry below was wrong in ONNX Runtime 1.31, and perhaps in other versions.
"""

from __future__ import annotations

from pathlib import Path

from nodes.executors.onnx.protobuf import nested, number_field, text_field, texts
from nodes.executors.onnx.schema import (
    GraphField,
    ModelField,
    NodeField,
    OperatorSetField,
    graphs,
    has_bodies,
)

FAULTY_FOR_ALL = ["Pad_Fusion", "DoubleQDQPairsRemover"]
"""For every model: the first folds a `Pad` of zeros into the `MaxPool` after it, whose own padding
is −∞, which is wrong where values are negative. The second makes one pair of quantisers of two
that follow one another with different scales, so a value is rounded once instead of twice.
"""

_FAULTY_WITH_BODIES = ["ConstantFolding"]
"""For models whose operators have bodies: this one replaces an `If` by the branch that is taken and
loses tensors that branches inside branches read. Loading such a model then fails, or the process
crashes. silero-vad is an example."""

_FAULTY_FOR_WEIGHTS = ["WeightBiasQuantization"]
"""For models with quantisers and with weights of an operator that are not quantised: this one
quantises them to 8 bits. And for models of an operator set without `Round`: it quantises a bias by
that operator, and then the model cannot be loaded."""

_FAULTY_WITH_BLOCKS = ["QDQSelectorActionTransformer"]
"""For models with weights that are quantised by blocks: this one fuses them into products that know
one scale per column, which then fail."""

_BLOCKS = b"block_size"
"""The attribute by which a quantiser has blocks; to find its name elsewhere costs a fusion."""

_DEQUANTISER = b"DequantizeLinear"
_WEIGHED = ("Conv", "ConvTranspose", "Gemm")
"""The operators whose second input that optimiser quantises."""

_OPERATOR_SET_OF_ROUND = 11


def faulty_optimizers(model: Path) -> list[str]:
    """Return the names to pass to ONNX Runtime as `disabled_optimizers` for a model file.

    For a file that is missing or no model, those for every model: the engine's own error says more.
    """
    try:
        return faulty_optimizers_of(model.read_bytes())
    except (OSError, ValueError, IndexError):
        return [*FAULTY_FOR_ALL]


def faulty_optimizers_of(model: bytes) -> list[str]:
    """Return the same for a serialised model; raises ValueError or IndexError for other bytes."""
    return [
        *FAULTY_FOR_ALL,
        *(_FAULTY_WITH_BODIES if has_bodies(memoryview(model)) else ()),
        *(_FAULTY_WITH_BLOCKS if _BLOCKS in model else ()),
        *(_FAULTY_FOR_WEIGHTS if _lacks_round(model) or _has_plain_weights(model) else ()),
    ]


def _lacks_round(model: bytes) -> bool:
    return _operator_set(model) < _OPERATOR_SET_OF_ROUND


def _has_plain_weights(model: bytes) -> bool:
    """Return whether a model has quantisers, and weights that none of them makes."""
    if _DEQUANTISER not in model:
        return False
    weights, quantised = set(), set()
    for graph in graphs(memoryview(model)):
        for node in nested(graph, (GraphField.NODE,)):
            operator = text_field(node, NodeField.OP_TYPE)
            if operator in _WEIGHED:
                weights.add(texts(node, NodeField.INPUT)[1])
            elif operator == _DEQUANTISER.decode():
                quantised.update(texts(node, NodeField.OUTPUT))
    return not weights <= quantised


def _operator_set(model: bytes) -> int:
    """Return the version of ONNX's own operators.

    A model that does not state it cannot be loaded, so any number will do for it.
    """
    found = _OPERATOR_SET_OF_ROUND
    for operator_set in nested(memoryview(model), (ModelField.OPSET_IMPORT,)):
        if not text_field(operator_set, OperatorSetField.DOMAIN):
            found = number_field(operator_set, OperatorSetField.VERSION)
    return found
