"""Messages of the protocol over gRPC: protobuf to arrays and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.serve import http_form
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.messages import (
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
    Array,
    ModelRepository,
    ServedModel,
    check_complete,
    check_output,
    checked_input,
    from_bytes,
    from_numbers,
    to_bytes,
)

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
class InferCall:
    """A frame for a model, and the names of the outputs that are wanted of it."""

    model: ServedModel
    id: str
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]


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


def read_infer(given: InferMessage, model: ServedModel) -> InferCall:
    """Return the call of the model; arrays sent as bytes are views of the message's data.

    Raises `RequestError`.
    """
    raw = given.raw
    if given.size_bytes > model.largest_message_bytes or (raw and len(given.rest) > MESSAGE_BYTES):
        raise RequestError(
            f"the message has {given.size_bytes} bytes, {len(given.rest)} of them beside its "
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
            raise RequestError(f"input {one.name!r} is in shared memory, which is not served")
        if raw:
            if one.HasField("contents"):
                raise RequestError(f"input {one.name!r} has contents beside raw contents")
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
    check_complete(model, inputs)
    for one in message.outputs:
        if "shared_memory_region" in one.parameters or "classification" in one.parameters:
            raise RequestError(
                f"output {one.name!r}: classification and shared memory are not served"
            )
    wanted = dict.fromkeys(check_output(model, one.name) for one in message.outputs)
    return InferCall(model, message.id, inputs, tuple(wanted or model.outputs))


def write_infer(
    call: InferCall, outputs: Mapping[str, Array], *, is_streamed: bool = False
) -> bytes:
    """Return the encoded `ModelInferResponse`, its tensors as raw contents.

    In a stream, it says that no other response to this request follows.
    """
    model = call.model
    message = METHODS["ModelInfer"][1](
        model_name=model.name, model_version=model.version, id=call.id
    )
    if is_streamed:
        message.parameters["triton_final_response"].bool_param = True
    for name in call.outputs:
        array = outputs[name]
        message.outputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
    raw = [to_bytes(outputs[name]) for name in call.outputs]
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
            return http_form.server_metadata(version)
        case "ModelMetadata":
            return http_form.model_metadata(models[0])
        case "ModelConfig":
            return {"config": http_form.model_config(models[0])}
        case "ModelStatistics":
            return http_form.model_statistics(models)
        case _:
            return {"models": http_form.repository_index(models, is_ready)}
