"""Refuse unsupported operators, operator sets and element types early and by name."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable

import numpy as np
import onnx
from onnx import helper

from cnn.errors import ModelError
from cnn.operators import contrib
from cnn.operators.bodies import every_node, reads
from cnn.operators.standard import NUMBERS, STANDARD_DOMAINS, standard_opset
from cnn.operators.versions import NEWEST

OLDEST_OPSET = 7

RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
_LAYOUTS = frozenset({"com.microsoft.nchwc", "com.ms.internal.nhwc"})


def opset(proto: onnx.ModelProto, label: str) -> int:
    """Return the version of ONNX's operator set; raise `ModelError` if it is absent or too old."""
    version = standard_opset(proto.opset_import)
    if not version:
        raise ModelError(f"{label}: the model does not use ONNX's own operator set")
    if version < OLDEST_OPSET:
        raise ModelError(
            f"{label}: operator set {version} is too old, the oldest that can be run is "
            f"{OLDEST_OPSET}; convert the file with onnx.version_converter.convert_version"
        )
    if version > NEWEST:
        raise ModelError(
            f"{label}: operator set {version} is newer than {NEWEST}, the newest that onnx "
            f"{onnx.__version__} knows; export the model for {NEWEST} or an older one, or install "
            "a newer onnx"
        )
    return version


def describe(node: onnx.NodeProto) -> str:
    """Return how messages call a node: its name (else its first output), operator and domain."""
    name = node.name or next(iter(node.output), "")
    domain = "" if node.domain in STANDARD_DOMAINS else f" of the domain {node.domain!r}"
    return f"layer {name!r} ({node.op_type}){domain}"


def end_before(node: onnx.NodeProto, activations: Container[str]) -> str:
    """Return the advice to end the network at those of the `activations` that `node` reads.

    An input of the network is none of them, because no network ends there.
    """
    names = [name for name in reads(node) if name in activations]
    if not names:
        return "name tensors that do not need it as `outputs`"
    return f"end the network before it: outputs: {json.dumps(names, ensure_ascii=False)}"


def check_domains(nodes: Iterable[onnx.NodeProto], activations: Container[str], label: str) -> None:
    """Refuse operators outside ONNX's own domain that have no rule in `cnn.operators.contrib`.

    Their output shapes cannot be inferred. The error advises to end the network at one of the
    `activations` of the main graph.
    """
    for node in nodes:
        if node.domain in STANDARD_DOMAINS or contrib.is_known(node):
            continue
        called = f"{label}: {describe(node)} is"
        if node.domain in _LAYOUTS:
            raise ModelError(
                f"{called} written by ONNX Runtime for the processor of one machine; optimise the "
                "model at the level `extended` at most, or leave that to the nodes"
            )
        if node.domain == contrib.DOMAIN:
            raise ModelError(
                f"{called} one of ONNX Runtime's own operators, of which only those that its "
                "quantizer and optimiser write for CNNs and transformers can be run; export the "
                f"model without it, or {end_before(node, activations)}"
            )
        if node.domain == contrib.ML_DOMAIN:
            raise ModelError(
                f"{called} one that works on text or on maps, or that this version does not know; "
                f"export the model without it, or {end_before(node, activations)}"
            )
        raise ModelError(
            f"{called} a custom operator, whose output shapes are not known here; export the model "
            f"with standard ONNX operators only, or {end_before(node, activations)}"
        )


def check_known(
    nodes: Iterable[onnx.NodeProto], version: int, activations: Container[str], label: str
) -> None:
    """Refuse operators that ONNX's operator set of this version does not have."""
    for node in nodes:
        if not contrib.is_known(node) and not onnx.defs.has(node.op_type, version, ""):
            raise ModelError(
                f"{label}: {describe(node)} is not an operator of ONNX's operator set {version}; "
                f"export the model with standard ONNX operators only, or "
                f"{end_before(node, activations)}"
            )


def check_operators(nodes: Iterable[onnx.NodeProto], label: str) -> None:
    """Refuse random operators and text, in bodies too, after constants were folded."""
    for node in every_node(nodes):
        called = f"{label}: {describe(node)}"
        if node.op_type in RANDOM:
            raise ModelError(
                f"{called} draws random numbers, so no run could be compared with another; "
                "export the model for inference"
            )
        if node.op_type.startswith("String"):
            raise ModelError(
                f"{called} works on text; only tensors of numbers can travel between devices. Cut "
                "this part off the model before exporting it"
            )


def check_element_type(element_type: int, what: str) -> None:
    """Raise `ModelError` for an element type that is undefined, or that ONNX does not have."""
    if element_type not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f"{what} has the element type {element_type}, which this version of onnx does not "
            "know: the file is damaged, or newer"
        )
    if element_type == onnx.TensorProto.UNDEFINED:
        raise ModelError(f"{what} has no element type; export the model again")


def numpy_dtype(element_type: int, what: str) -> str:
    """Return the NumPy name of an ONNX element type.

    Raises `ModelError` for a type that NumPy does not have; `what` begins the sentence.
    """
    check_element_type(element_type, what)
    name = onnx.TensorProto.DataType.Name(element_type).lower()
    if element_type == onnx.TensorProto.STRING:
        raise ModelError(
            f"{what} holds text; only tensors of numbers can travel between devices. Cut the part "
            "of the model that works on text off before exporting it"
        )
    if name not in NUMBERS:
        raise ModelError(
            f"{what} holds {name} values, which NumPy does not have; "
            "export the model in float32, float16 or 8-bit integers"
        )
    return np.dtype(helper.tensor_dtype_to_np_dtype(element_type)).name
