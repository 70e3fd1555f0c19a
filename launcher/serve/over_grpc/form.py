"""Messages of the protocol over gRPC: protobuf to arrays and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.serve import described
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.infer_request import (
    InferRequest,
    checked_classes,
    classified,
    texts_as_bytes,
)
from launcher.serve.over_grpc.messages import (
    ERROR_MESSAGE,
    INFER_RESPONSE,
    METHODS,
    field,
    parsed,
    parted,
)
from launcher.serve.tensors import (
    DATATYPES,
    MESSAGE_BYTES,
    ModelRepository,
    ServedModel,
    check_output,
    checked_input,
    frames_of,
    from_bytes,
    from_numbers,
    to_bytes,
)
from nodes.protocol.payload import Array

MODEL_NAME, MODEL_VERSION, REQUEST_ID, RAW_INPUTS = 1, 2, 3, 7
"""The numbers of fields of `ModelInferRequest`."""

RAW_OUTPUTS = 6
"""The number of the field `raw_output_contents` of `ModelInferResponse`."""

CONTENTS = {
    "bool": "bool_contents",
    "int8": "int_contents",
    "int16": "int_contents",
    "int32": "int_contents",
    "int64": "int64_contents",
    "uint8": "uint_contents",
    "uint16": "uint_contents",
    "uint32": "uint_contents",
    "uint64": "uint64_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
}
"""Dtype → the field of `InferTensorContents` with its values; FP16 is sent as bytes only."""


@dataclass(frozen=True)
class InferMessage:
    """A `ModelInferRequest` of which only the model's name is known yet."""

    model: str
    version: str
    """The version of the model; empty for the present one."""
    size_bytes: int
    rest: bytes
    """The message without the tensors that are sent as bytes."""
    raw: Sequence[memoryview]


def parse_infer(data: bytes) -> InferMessage:
    """Return the `ModelInferRequest` in `data`; raises `RequestError`."""
    rest, contents = parted(data, MODEL_NAME, MODEL_VERSION, RAW_INPUTS)
    try:
        name, version = (
            bytes(contents[number][-1]).decode() if contents[number] else ""
            for number in (MODEL_NAME, MODEL_VERSION)
        )
    except UnicodeDecodeError:
        raise RequestError("the message is not a valid protobuf of its type") from None
    return InferMessage(name, version, len(data), rest, contents[RAW_INPUTS])


def read_infer(given: InferMessage, model: ServedModel) -> InferRequest:
    """Return what the message asks for; arrays sent as bytes are views of the message's data.

    Raises `RequestError`.
    """
    raw = given.raw
    if given.size_bytes > model.largest_message_bytes or (raw and len(given.rest) > MESSAGE_BYTES):
        raise RequestError(
            f"the message has {given.size_bytes} bytes, {len(given.rest)} of them outside its "
            "tensors, more than any request for this model needs",
            Refusal.TOO_LARGE,
        )
    message = parsed(METHODS["ModelInfer"][0], given.rest)
    if raw and len(raw) != len(message.inputs):
        raise RequestError(f"{len(message.inputs)} inputs have {len(raw)} raw contents")
    inputs: dict[str, Array] = {}
    for index, one in enumerate(message.inputs):
        tensor = checked_input(model, one.name, one.datatype, tuple(one.shape), inputs)
        if "shared_memory_region" in one.parameters:
            raise RequestError(
                f"input {one.name!r} is in shared memory, which is not served; send its values as "
                "raw contents"
            )
        if raw:
            if one.HasField("contents"):
                raise RequestError(f"input {one.name!r} has contents in addition to raw contents")
            inputs[one.name] = from_bytes(tensor, raw[index])
        elif tensor.dtype in CONTENTS:
            numbers = getattr(one.contents, CONTENTS[tensor.dtype])
            if len(numbers) != (count := math.prod(tensor.shape)):
                raise RequestError(
                    f"input {one.name!r} has {len(numbers)} numbers; the model takes {count}"
                )
            inputs[one.name] = from_numbers(tensor, list(numbers))
        else:
            raise RequestError(f"input {one.name!r} is FP16; send it as raw contents")
    frames = frames_of(model, inputs)
    wanted: dict[str, bool] = {}
    classes: dict[str, int] = {}
    for one in message.outputs:
        name = check_output(model, one.name)
        if "shared_memory_region" in one.parameters:
            raise RequestError(
                f"output {name!r} is wanted in shared memory, which is not served; take it from "
                "the raw contents"
            )
        wanted[name] = True
        if "classification" in one.parameters:
            count = one.parameters["classification"].int64_param
            classes |= {name: checked_classes(name, count)} if count else {}
    outputs = wanted or dict.fromkeys(model.outputs, True)
    return InferRequest(message.id, inputs, outputs, frames, classes)


def write_infer(
    request: InferRequest,
    model: ServedModel,
    outputs: Mapping[str, Array],
    *,
    is_streamed: bool = False,
) -> bytes:
    """Return the encoded `ModelInferResponse`, its tensors as raw contents.

    In a stream, it says that no other response to this request follows.
    """
    message = METHODS["ModelInfer"][1](
        model_name=model.name, model_version=model.version, id=request.id
    )
    if is_streamed:
        message.parameters["triton_final_response"].bool_param = True
    raw = []
    for name in request.outputs:
        array = outputs[name]
        if name in request.classes:
            count = request.classes[name]
            shape, texts = classified(array, request.frames, count, model.labels)
            message.outputs.add(name=name, datatype="BYTES", shape=shape)
            raw.append(texts_as_bytes(texts))
        else:
            message.outputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
            raw.append(to_bytes(array))
    return b"".join((message.SerializeToString(), *field(RAW_OUTPUTS, raw)))


def streamed(response: bytes) -> bytes:
    """Return the encoded `ModelStreamInferResponse` of a `ModelInferResponse`."""
    return b"".join(field(INFER_RESPONSE, [response]))


def streamed_error(data: bytes, sentence: str) -> bytes:
    """Return the encoded `ModelStreamInferResponse` to a request that is refused.

    It has the request's id and the model's name as far as `data`, the request, can be read.
    """
    try:
        _, found = parted(data, MODEL_NAME, REQUEST_ID)
    except RequestError:
        found = {}
    names = {"model_name": found.get(MODEL_NAME), "id": found.get(REQUEST_ID)}
    response = METHODS["ModelInfer"][1]()
    for key, contents in names.items():
        if contents:
            setattr(response, key, bytes(contents[-1][:MESSAGE_BYTES]).decode("utf-8", "replace"))
    response = response.SerializeToString()
    parts = (*field(ERROR_MESSAGE, [sentence.encode()]), *field(INFER_RESPONSE, [response]))
    return b"".join(parts)


def answer(
    method: str, data: bytes, repository: ModelRepository, version: str, is_ready: bool
) -> bytes:
    """Return the encoded response of every method but `ModelInfer`.

    `version` is the server's. Raises `RequestError`.
    """
    request_kind, response_kind = METHODS[method]
    if len(data) > MESSAGE_BYTES:
        raise RequestError(f"the message is larger than {MESSAGE_BYTES} bytes", Refusal.TOO_LARGE)
    request = parsed(request_kind, data)
    models = repository.models
    if method in ("ModelReady", "ModelMetadata", "ModelConfig") or (
        method == "ModelStatistics" and request.name
    ):
        models = (repository.find(request.name, request.version),)
    response = response_kind(**_fields(method, models, version, is_ready))
    return bytes(response.SerializeToString())


def _fields(
    method: str, models: Sequence[ServedModel], version: str, is_ready: bool
) -> dict[str, Any]:
    match method:
        case "ServerLive":
            return {"live": True}
        case "ServerReady" | "ModelReady":
            return {"ready": is_ready}
        case "ServerMetadata":
            return described.server_metadata(version)
        case "ModelMetadata":
            return described.model_metadata(models[0])
        case "ModelConfig":
            return {"config": described.model_config(models[0])}
        case "ModelStatistics":
            return described.model_statistics(models)
        case _:
            return {"models": described.repository_index(models, is_ready)}
