"""A network that carries tensors of any size from a layer to the next, to measure links with.

Each branch grows one value to a row of them (`growN`), and shrinks it to one (`shrinkN`): nearly
nothing to compute, nearly nothing to send in or out, and in between a tensor as large as wanted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 13
IR_VERSION = 8


def write_wire_probe(path: Path, values: int, branches: int = 1) -> Path:
    """Write it as ONNX: `branches` of them, each with a tensor float32 [1, `values`] inside.

    Inputs `x0`, `x1`, … and outputs `y0`, `y1`, …, all [1, 1]; `values` at least 2. Branches share
    no input, so that nobody takes them for one.
    """
    nodes = []
    for number in range(branches):
        row = f"row{number}"
        nodes.append(helper.make_node("Expand", [f"x{number}", "shape"], [row], f"grow{number}"))
        nodes.append(
            helper.make_node("ReduceMax", [row], [f"y{number}"], f"shrink{number}", axes=[1])
        )
    one = [1, 1]
    graph = helper.make_graph(
        nodes,
        "wire probe",
        [
            helper.make_tensor_value_info(f"x{number}", onnx.TensorProto.FLOAT, one)
            for number in range(branches)
        ],
        [
            helper.make_tensor_value_info(f"y{number}", onnx.TensorProto.FLOAT, one)
            for number in range(branches)
        ],
        [numpy_helper.from_array(np.array([1, values], np.int64), "shape")],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    onnx.save(model, str(path))
    return path
