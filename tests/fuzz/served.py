"""Requests to `launch serve`: bodies over HTTP, and messages over gRPC.

An HTTP input is the text of the header that says how long the JSON is, a line feed, and the body.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from google.protobuf.message_factory import GetMessageClass

from launcher.serve.errors import RequestError
from launcher.serve.over_grpc import form as grpc_form
from launcher.serve.over_grpc.messages import _POOL, METHODS, SERVICE, STREAM
from launcher.serve.over_http import form as http_form
from launcher.serve.tensors import DATATYPES, ModelRepository, ServedModel
from launcher.streaming.live_model import TensorInfo
from tests.fuzz.mutation import mutated, mutated_text

STREAMED = GetMessageClass(_POOL.FindServiceByName(SERVICE).FindMethodByName(STREAM).output_type)

FRAME: dict[str, np.ndarray[Any, Any]] = {
    "image": np.linspace(0, 1, 12, dtype=np.float32).reshape(1, 3, 4),
    "count": np.arange(4, dtype=np.uint64),
    "mask": np.array([True, False]),
}
TENSORS = {n: TensorInfo(n, array.dtype.name, array.shape) for n, array in FRAME.items()}
MODEL = ServedModel("net", TENSORS, TENSORS)
MODELS = ModelRepository((MODEL,))


def read_http(data: bytes) -> bool:
    """A body of HTTP and the length of its JSON; a good one is answered as well."""
    length, _, body = data.partition(b"\n")
    try:
        request = http_form.read_infer(body, length.decode("latin-1") or None, MODEL)
        _check(request.inputs)
        response = http_form.write_infer(request, MODEL, request.inputs)
    except RequestError as error:
        _is_good_sentence(error)
        return False
    json.loads(response.parts[0])
    return True


def read_grpc(data: bytes) -> bool:
    """A method's number and its message; a good one is answered as well."""
    method = sorted(METHODS)[data[0] % len(METHODS)] if data else "ModelInfer"
    try:
        if method != "ModelInfer":
            grpc_form.answer(method, data[1:], MODELS, "0", is_ready=True)
            return True
        given = grpc_form.parse_infer(data[1:])
        model = MODELS.find(given.model, given.version)
        call = grpc_form.read_infer(given, model)
        _check(call.inputs)
        METHODS[method][1].FromString(grpc_form.write_infer(call, model, call.inputs))
    except RequestError as error:
        _is_good_sentence(error)
        if method == "ModelInfer":
            STREAMED.FromString(grpc_form.streamed_error(data[1:], str(error)))
        return False
    return True


def _check(inputs: Any) -> None:
    found = {name: (array.shape, array.dtype) for name, array in inputs.items()}
    assert found == {name: (array.shape, array.dtype) for name, array in FRAME.items()}


def _is_good_sentence(error: RequestError) -> None:
    assert "\n" not in str(error)
    assert 0 < len(str(error)) < 1000


def changed_http(seeds: Sequence[bytes], random: Random) -> bytes:
    """Bytes changed anywhere, or the text of a body without binary tensors."""
    if random.random() < 0.5:
        return mutated(seeds, random)
    texts = [seed[1:].decode() for seed in seeds if seed.startswith(b"\n")]
    return b"\n" + mutated_text(texts, random).encode("utf-8", "surrogatepass")


def _described(name: str, **more: Any) -> dict[str, Any]:
    array = FRAME[name]
    datatype = DATATYPES[array.dtype.name]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), **more}


def _as_json() -> bytes:
    inputs = [_described(name, data=array.tolist()) for name, array in FRAME.items()]
    return b"\n" + json.dumps({"id": "1", "inputs": inputs}, indent=1).encode()


def _as_bytes() -> bytes:
    inputs = [
        _described(name, parameters={"binary_data_size": array.nbytes})
        for name, array in FRAME.items()
    ]
    outputs = [{"name": "image", "parameters": {"binary_data": True}}, {"name": "count"}]
    header = json.dumps({"inputs": inputs, "outputs": outputs}).encode()
    values = (array.tobytes() for array in FRAME.values())
    return b"".join((b"%d\n" % len(header), header, *values))


def _as_messages() -> tuple[bytes, ...]:
    found = []
    for number, method in enumerate(sorted(METHODS)):
        message = METHODS[method][0]()
        if "name" in message.DESCRIPTOR.fields_by_name:
            message.name = "net"
        if method == "ModelInfer":
            message.model_name = "net"
            message.inputs.extend(
                type(message).InferInputTensor(**_described(name)) for name in FRAME
            )
            raw = [array.tobytes() for array in FRAME.values()]
            whole = type(message).FromString(message.SerializeToString())
            whole.raw_input_contents.extend(raw)
            found.append(bytes([number]) + whole.SerializeToString())
            for one, array in zip(message.inputs, FRAME.values(), strict=True):
                contents = getattr(one.contents, grpc_form.CONTENTS[array.dtype.name])
                contents.extend(array.ravel().tolist())
        found.append(bytes([number]) + message.SerializeToString())
    return tuple(found)


HTTP = (_as_json(), _as_bytes())
GRPC = _as_messages()
