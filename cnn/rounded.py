"""A model that rounds each of its float16 tensors to that type.

Where a processor has no kernels for float16, ONNX Runtime computes in float32 and leaves out the
roundings between operators that follow each other. Identities behind every operator, in a session
that fuses nothing, bring them back: they have a kernel for every type. It takes two, as a single
operator of half precision among others is computed in float32 too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
from onnx import helper


def write_rounded(graph: Path, folder: Path) -> Path:
    """Write such a copy of the model `graph` into another folder, external weights beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    proto = onnx.load(str(graph), load_external_data=False)
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    half = {
        value.name
        for value in (*inferred.value_info, *inferred.output)
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    }
    nodes = []
    for node in proto.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        for index, name in enumerate(copy.output):
            if name in half and copy.op_type != "Constant":
                copy.output[index], between = f"{name}~1", f"{name}~2"
                nodes.append(helper.make_node("Identity", [copy.output[index]], [between]))
                nodes.append(helper.make_node("Identity", [between], [name]))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    for location in {y.value for x in proto.graph.initializer for y in x.external_data
                     if y.key == "location"}:  # fmt: skip
        # A copy, since readers refuse weights in links, hard ones included.
        shutil.copyfile(graph.parent / location, folder / location)
    target = folder / f"{graph.name} rounded"
    target.write_bytes(proto.SerializeToString())
    return target
