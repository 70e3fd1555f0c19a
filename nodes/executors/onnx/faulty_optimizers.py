"""Names the optimisers of ONNX Runtime that must be switched off for a model.

Each entry below was wrong in ONNX Runtime 1.31, and perhaps in other versions.
"""

from __future__ import annotations

from pathlib import Path

from nodes.executors.onnx.protobuf import nested, number_field, text_field
from nodes.executors.onnx.quantised import faulty_for_quantised
from nodes.executors.onnx.schema import ModelField, OperatorSetField, has_bodies

FAULTY_FOR_ALL = ["Pad_Fusion", "DoubleQDQPairsRemover"]
"""For every model: the first folds a `Pad` of zeros into the `MaxPool` after it, whose own padding
is −∞, which is wrong where values are negative. The second makes one pair of quantisers of two
that follow one another with different scales, so a value is rounded once instead of twice.
"""

_FAULTY_WITH_BODIES = ["ConstantFolding"]
"""For models whose operators have bodies: this one replaces an `If` by the branch that is taken and
loses tensors that branches inside branches read. Loading such a model then fails, or the process
crashes. silero-vad is an example."""

_FAULTY_WITHOUT_ROUND = ["WeightBiasQuantization"]
"""For models of an operator set without `Round`: this one quantises a bias by that operator, and
then the model cannot be loaded."""

_FAULTY_WITH_BLOCKS = ["QDQSelectorActionTransformer"]
"""For models with weights that are quantised by blocks: this one fuses them into products that know
one scale per column, which then fail."""

_BLOCKS = b"block_size"
"""The attribute by which a quantiser has blocks; to find its name elsewhere costs a fusion."""

_OPERATOR_SET_OF_ROUND = 11


def faulty_optimizers(model: Path) -> list[str]:
    """Return the names to pass to ONNX Runtime as `disabled_optimizers` for a model file.

    For a file that is missing or no model, those for every model: the engine's own error says more.
    """
    try:
        return faulty_optimizers_of(model.read_bytes(), model.parent)
    except (OSError, LookupError, ValueError):
        return [*FAULTY_FOR_ALL]


def faulty_optimizers_of(model: bytes, folder: Path | None = None) -> list[str]:
    """Return the same for a serialised model, whose external data is in `folder`.

    Raises ValueError or LookupError for other bytes, OSError if external data cannot be read.
    """
    operator_set = _operator_set(model)
    return [
        *FAULTY_FOR_ALL,
        *(_FAULTY_WITH_BODIES if has_bodies(memoryview(model)) else ()),
        *(_FAULTY_WITH_BLOCKS if _BLOCKS in model else ()),
        *(_FAULTY_WITHOUT_ROUND if operator_set < _OPERATOR_SET_OF_ROUND else ()),
        *faulty_for_quantised(model, operator_set, folder),
    ]


def _operator_set(model: bytes) -> int:
    """Return the version of ONNX's own operators.

    A model that does not state it cannot be loaded, so any number will do for it.
    """
    found = _OPERATOR_SET_OF_ROUND
    for operator_set in nested(memoryview(model), (ModelField.OPSET_IMPORT,)):
        if not text_field(operator_set, OperatorSetField.DOMAIN):
            found = number_field(operator_set, OperatorSetField.VERSION)
    return found
