"""Good inputs of every reader, which are then made bad."""

from __future__ import annotations

import json

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from nodes.protocol import codec
from nodes.protocol import messages as words

EPOCH = 7
GRAPH = words.BlobInfo("a" * 64, 1)


def _channel(
    number: int, tensor: str, source: str, target: str, *, made: int | None, read: int | None
) -> words.ChannelSpec:
    targets = () if read is None else (read,)
    return words.ChannelSpec(number, tensor, "float32", (2,), source, made, target, targets, 2)


DEPLOYMENT = words.Deployment(
    EPOCH, "n0", "pipelined",
    (
        words.PhaseSpec("p0", GRAPH, None, ("x",), ("t0",)),
        words.PhaseSpec("p2", GRAPH, None, ("t1",), ("t2",)),
    ),
    (
        _channel(0, "x", words.HOST, "n0", made=None, read=0),
        _channel(1, "t0", "n0", "n1", made=0, read=0),
        _channel(2, "t1", "n1", "n0", made=0, read=1),
        _channel(3, "t2", "n0", words.HOST, made=1, read=None),
    ),
    (words.PeerSpec("n1", "tcp://n1:1"),),
)  # fmt: skip
"""The first and the last phase of three, of which another node has the second."""

_STATS = words.Stats(EPOCH, (1,), (0.5,), 1.0, 1.0, 8, 8, 1, 1, 1, 0, 0, 8, (0.5,), 4.5)

OPTIONS = (words.OptionOffer("o", ("v",)), words.OptionOffer("p", (), 1.0, 2.0, True))
OFFERS = (words.EngineOffer("e", "", (words.DeviceOffer("gpu:1", ("fp16",)),), OPTIONS),)

MESSAGES: tuple[words.Message, ...] = (
    words.Hello(words.PROTOCOL, "s", 5.0), words.Query(("a" * 64,)), words.Put(GRAPH, 0, b"x"),
    words.Deploy(DEPLOYMENT), words.Start(EPOCH), words.Stop(EPOCH),
    words.GetStats(), words.Ping(), words.Bye(), words.Shutdown(),
    words.Welcome(1, "n0", "0", "tcp://h:1", "e", "m", 4, 10**8, (), None, OFFERS),
    words.Refused("no", 1),
    words.Missing(("a" * 64,)), words.Stored("a" * 64, 0, True), words.Progress(EPOCH, 1, 2, "w"),
    words.Deployed(EPOCH, (0.1,), 10**8), words.Failed(EPOCH, "why"), words.Stopped(EPOCH, _STATS),
    _STATS, words.Pong(), words.Attach(EPOCH, "n1"), words.Attach(EPOCH, words.HOST),
    words.Credit(EPOCH, 1, 2), words.TensorHeader(EPOCH, 0, 0, "float32", (2,)),
)  # fmt: skip
ENCODED = tuple(codec.encode(message) for message in MESSAGES)

CLUSTERS = (
    b"model: {path: a.onnx, input_shape: [1, 3, 8, 8]}\n"
    b"nodes:\n  - name: a\n    address: tcp://10.0.0.1:5500\n    memory: 2GB\n    link: 1Gbit/s\n"
    b"  - {name: b, threads: 2, cpus: [0, 1], macs_per_s: 20G}\n"
    b"input: {files: ['*.jpg'], scale: 1, mean: [0.5, 0.5, 0.5], resize: pad}\n"
    b"pins: {conv1: a, 'head*': b}\nframes: 9\nseed: 3\nkeys: keys\nverify: false\n"
    b"run: {order: strict, lease_s: 5}\n",
    b"model: [a.onnx, {path: b.onnx, name: k}]\nnodes: [{name: a}]\ninputs: {k: x/*.png}\n",
)

_PLAN = {
    "format": 1,
    "assignment": {"a": ["conv1", "relu1"], "b": ["fc"]},
    "rewrites": [],
    "model": "a.onnx",
    "model_digest": "ab" * 32,
    "strategy": "vertical",
    "explanation": "so",
    "optimal": True,
    "gap": 0.0,
    "derived": {"proof": "p", "period_s": 0.1, "nodes": [], "phases": [], "channels": []},
}
PLANS = (json.dumps(_PLAN).encode(), json.dumps(_PLAN, indent=1).encode())

_IDENTITY = {
    "host": "h", "threads": 1, "cpus": [0], "machine": "m", "cores": 4, "engine": "e",
    "version": "1",
}  # fmt: skip
_TIMES = {
    "layer_s": {"conv1": 0.1, "fc": 0.2},
    "subnets": [{"layers": ["conv1"], "inputs": ["x"], "outputs": ["y"], "seconds": 0.1}],
    "message_s": 1e-5,
    "byte_s": 1e-9,
    "batches": [[2, 0.1]],
}
_PROFILE = {
    "format": 1,
    "model": "a.onnx",
    "model_digest": "ab" * 32,
    "energy": "stated",
    "nodes": {"a": {"identity": _IDENTITY, "measured": _TIMES}},
    "links": [{"ends": ["a", "b"], "latency_s": 1e-4, "bytes_per_s": 1e8}],
}
PROFILES = (json.dumps(_PROFILE).encode(),)

KEYS = (b"# of a\n" + b"ab" * 32 + b"\n", b"cd" * 32)

WEIGHTS = b"1234"
"""What the file `weights` holds, which a network refers to."""


def subnet(*, external: bool = False) -> bytes:
    """A network as a node reads it."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    if external:
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], data_location=1)
        for key, value in (("location", "weights"), ("offset", "0"), ("length", "4")):
            tensor.external_data.add(key=key, value=value)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    node = helper.make_node("Add", ["x", "w"], ["y"], name="add")
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    model = helper.make_model(helper.make_graph([node, constant], "g", [value], [], [tensor]))
    return bytes(model.SerializeToString())


def network() -> bytes:
    """A network as users bring it: a convolution, its activation, a matrix product."""
    weights = {
        "w": np.ones((2, 1, 3, 3), np.float32),
        "shape": np.array([1, -1], np.int64),
        "fc": np.ones((8, 3), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[0, 0, 0, 0]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Reshape", ["r", "shape"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "fc"], ["y"], "fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(model.SerializeToString())
