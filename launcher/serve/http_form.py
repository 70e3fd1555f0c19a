"""Bodies of the protocol over HTTP: JSON, and JSON with tensors as bytes after it.

A body with binary tensors begins with JSON of the length that the header
`Inference-Header-Content-Length` gives. The tensors follow in the order of the inputs, each of
`binary_data_size` bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from launcher.errors import shortened
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.tensors import (
    DATATYPES,
    EXTENSIONS,
    FEW,
    Array,
    ServedModel,
    check_complete,
    check_output,
    checked_input,
    from_bytes,
    from_numbers,
    to_bytes,
)

LENGTH_HEADER = "Inference-Header-Content-Length"
SERVER = "csdf-edge"

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|config|stats|infer))?")
_PLACES = {
    "/v2": ("GET", "server"),
    "/v2/health/live": ("GET", "live"),
    "/v2/health/ready": ("GET", "server_ready"),
    "/v2/models/stats": ("GET", "stats"),
    "/v2/repository/index": ("POST", "index"),
}


@dataclass(frozen=True)
class Call:
    """The route that a request's method and path name; `model` is empty for the server itself."""

    what: str
    model: str = ""
    version: str = ""


def route(method: str, path: str) -> Call:
    """Return the call at `path` (percent-decoded). Raises `RequestError`."""
    if (known := _PLACES.get(path.rstrip("/"))) is not None:
        wanted, call = known[0], Call(known[1])
    elif (match := _MODEL.fullmatch(path)) is not None:
        what = match[3] or "model"
        wanted, call = "POST" if what == "infer" else "GET", Call(what, match[1], match[2] or "")
    else:
        raise RequestError(f"nothing is served at {shortened(path)!r}", Refusal.NOT_FOUND)
    if method != wanted:
        raise RequestError(f"{shortened(path)!r} takes {wanted}", Refusal.NOT_ALLOWED)
    return call


# ---------------------------------------------------------------- requests


class _Parameters(BaseModel):
    """The parameters that mean something here; the protocol has all others ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    classification: int | None = None
    shared_memory_region: str | None = None


class _Input(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    name: str
    datatype: str
    shape: list[int]
    parameters: _Parameters = _Parameters()
    data: Any = None


class _Output(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    name: str
    parameters: _Parameters = _Parameters()


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    id: str = ""
    parameters: _Parameters = _Parameters()
    inputs: list[_Input] = Field(max_length=FEW)
    outputs: list[_Output] = Field(default=[], max_length=FEW)


@dataclass(frozen=True)
class InferRequest:
    """One frame, and the outputs that are wanted of it, each with whether as bytes."""

    id: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, bool]


def read_infer(body: bytes, json_bytes: str | None, model: ServedModel) -> InferRequest:
    """Return what an infer request asks for; `json_bytes` is the header `LENGTH_HEADER`.

    Arrays of binary tensors are views of `body`. Raises `RequestError`.
    """
    header, binary = _split(body, json_bytes)
    given = _parsed(header, model)
    inputs: dict[str, Array] = {}
    at = 0
    for one in given.inputs:
        tensor = checked_input(model, one.name, one.datatype, one.shape, inputs)
        size = one.parameters.binary_data_size
        if one.parameters.shared_memory_region is not None:
            raise RequestError(f"input {one.name!r} is in shared memory, which is not served")
        if size is None:
            inputs[one.name] = from_numbers(tensor, one.data)
        elif one.data is not None:
            raise RequestError(f"input {one.name!r} has data both as JSON and as bytes")
        elif not 0 <= size <= len(binary) - at:
            raise RequestError(
                f"input {one.name!r} has {size} bytes of binary data, "
                f"but {len(binary) - at} are left in the body"
            )
        else:
            inputs[one.name] = from_bytes(tensor, binary[at : at + size])
            at += size
    check_complete(model, inputs)
    if at != len(binary):
        raise RequestError(f"{len(binary) - at} bytes of the body belong to no input")
    return InferRequest(given.id, inputs, _wanted(given, model))


def _split(body: bytes, json_bytes: str | None) -> tuple[bytes, memoryview]:
    if json_bytes is None:
        return body, memoryview(b"")
    if not re.fullmatch(r"[0-9]{1,12}", json_bytes) or int(json_bytes) > len(body):
        raise RequestError(
            f"{LENGTH_HEADER} is {shortened(json_bytes)!r}; the body has {len(body)} bytes"
        )
    return body[: int(json_bytes)], memoryview(body)[int(json_bytes) :]


def _parsed(header: bytes, model: ServedModel) -> _Body:
    """Return the request in JSON, whose values are counted before they are made."""
    others = len(header) - len(header.translate(None, b'[{"'))
    if header.count(b",") > model.numbers + FEW or others > model.lists + FEW:
        raise RequestError("the request has more lists, texts and values than the model's inputs")
    try:
        return _Body.model_validate(json.loads(header))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the request"
        raise RequestError(f"{shortened(place)}: {shortened(first['msg'])}") from None
    except (ValueError, RecursionError) as error:  # JSON's and UTF-8's errors are ValueErrors
        raise RequestError(f"the request is not valid JSON: {shortened(str(error))}") from None


def _wanted(given: _Body, model: ServedModel) -> dict[str, bool]:
    usual = given.parameters.binary_data_output
    wanted: dict[str, bool] = {}
    for one in given.outputs:
        if one.parameters.classification or one.parameters.shared_memory_region is not None:
            raise RequestError(
                f"output {shortened(one.name)!r}: classification and shared memory are not served"
            )
        binary = one.parameters.binary_data
        wanted[check_output(model, one.name)] = usual if binary is None else binary
    return wanted or dict.fromkeys(model.outputs, usual)


# ---------------------------------------------------------------- responses


@dataclass(frozen=True)
class Response:
    """The status, the body in parts, and the length of its JSON if bytes follow it."""

    status: int
    parts: Sequence[bytes]
    json_bytes: int | None = None
    content_type: str = "application/json"


def write_infer(
    request: InferRequest, model: ServedModel, outputs: Mapping[str, Array]
) -> Response:
    """Return the response of a frame's results. Raises `RequestError` for NaN as JSON."""
    described, parts = [], []
    for name, binary in request.outputs.items():
        array = outputs[name]
        one: dict[str, object] = {
            "name": name,
            "datatype": DATATYPES[array.dtype.name],
            "shape": list(array.shape),
        }
        if binary:
            parts.append(to_bytes(array))
            one["parameters"] = {"binary_data_size": len(parts[-1])}
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            raise RequestError(
                f"output {name!r} holds NaN or infinity, which JSON cannot; ask for binary data",
                Refusal.INTERNAL,
            )
        else:
            one["data"] = array.ravel().tolist()
        described.append(one)
    head: dict[str, object] = {"model_name": model.name, "model_version": model.version}
    if request.id:
        head["id"] = request.id
    header = _encoded({**head, "outputs": described})
    return Response(200, (header, *parts), len(header) if parts else None)


def write_error(error: RequestError) -> Response:
    """Return the response that says what is wrong."""
    return write_json({"error": str(error)}, error.refusal.http_status)


def write_json(data: object, status: int = 200) -> Response:
    """Return a response of JSON."""
    return Response(status, (_encoded(data),))


def _encoded(data: object) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def server_metadata(version: str) -> dict[str, object]:
    """The server's metadata."""
    return {"name": SERVER, "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ServedModel) -> dict[str, object]:
    """The model's inputs and outputs. A dimension that varies from frame to frame is -1."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": model.platform,
        "inputs": [
            {"name": t.name, "datatype": DATATYPES[t.dtype], "shape": shape_of(t.shape, t.varies)}
            for t in model.inputs.values()
        ],
        "outputs": [
            {"name": t.name, "datatype": DATATYPES[t.dtype], "shape": shape_of(t.shape, t.varies)}
            for t in model.outputs.values()
        ],
    }


def shape_of(shape: Sequence[int], varies: bool) -> list[int]:
    """A shape in the form of metadata."""
    return [-1] * len(shape) if varies else list(shape)


def config_type(dtype: str) -> str:
    """The name of a dtype in a model's configuration, which is not that of tensors."""
    return f"TYPE_{DATATYPES[dtype]}"


def model_config(model: ServedModel) -> dict[str, object]:
    """The configuration, as in Triton's extension; the batch is part of the shapes."""
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": SERVER,
        "max_batch_size": 0,
        "input": [
            {"name": t.name, "data_type": config_type(t.dtype), "dims": list(t.shape)}
            for t in model.inputs.values()
        ],
        "output": [
            {"name": t.name, "data_type": config_type(t.dtype), "dims": shape_of(t.shape, t.varies)}
            for t in model.outputs.values()
        ],
    }


def model_statistics(models: Sequence[ServedModel]) -> dict[str, object]:
    """The counts, as in Triton's extension."""
    return {
        "model_stats": [
            {
                "name": model.name,
                "version": model.version,
                "inference_count": model.statistics.success.count,
                "execution_count": model.statistics.success.count,
                "inference_stats": {
                    name: duration.as_json()
                    for name, duration in model.statistics.durations().items()
                },
            }
            for model in models
        ]
    }


def repository_index(models: Sequence[ServedModel], is_ready: bool) -> list[dict[str, str]]:
    """Return the index of the models."""
    state = "READY" if is_ready else "UNAVAILABLE"
    return [
        {"name": model.name, "version": model.version, "state": state, "reason": ""}
        for model in models
    ]
