"""Bodies of the protocol over HTTP: JSON, and JSON with tensors as bytes after it.

A body with binary tensors begins with JSON of the length that the header
`Inference-Header-Content-Length` gives. The tensors follow in the order of the inputs, each of
`binary_data_size` bytes. If the header gives 0, the body is the only input's tensor.

Clients write null for what they leave out, which is read as if it were left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, NoReturn

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from launcher.errors import shortened
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.infer_request import (
    InferRequest,
    checked_classes,
    classified,
    texts_as_bytes,
)
from launcher.serve.not_offered import refuse_path
from launcher.serve.tensors import (
    DATATYPES,
    FEW,
    ServedModel,
    check_output,
    checked_input,
    frames_of,
    from_bytes,
    from_numbers,
    to_bytes,
)
from nodes.protocol.payload import Array

LENGTH_HEADER = "Inference-Header-Content-Length"

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(ready|config|stats|infer))?")
_PREDICT = re.compile(r"/v1/predict/([^/]+)(?:/versions/([^/]+))?")
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
    """Return the call at `path` (percent-decoded), which may end with a slash.

    Raises `RequestError`.
    """
    path = path.rstrip("/") or "/"
    if (known := _PLACES.get(path)) is not None:
        wanted, call = known[0], Call(known[1])
    elif (match := _MODEL.fullmatch(path)) is not None:
        what = match[3] or "model"
        wanted, call = "POST" if what == "infer" else "GET", Call(what, match[1], match[2] or "")
    elif (match := _PREDICT.fullmatch(path)) is not None:
        wanted, call = "POST", Call("predict", match[1], match[2] or "")
    else:
        refuse_path(path)
        raise RequestError(f"nothing is served at {shortened(path)!r}", Refusal.NOT_FOUND)
    if method != wanted:
        raise RequestError(f"{shortened(path)!r} takes {wanted}", Refusal.NOT_ALLOWED)
    return call


# ---------------------------------------------------------------- requests


def _encodable(text: str) -> str:
    """Refuse half of a surrogate pair, which JSON can hold and no answer or file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("utf8", "the text cannot be encoded as UTF-8") from None
    return text


_Text = Annotated[str, AfterValidator(_encodable)]


class _Part(BaseModel):
    """A part of a request; fields that are null are left out."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        if isinstance(given, dict):
            return {key: value for key, value in given.items() if value is not None}
        return given


class _Parameters(_Part):
    """The parameters that have a meaning here; the protocol ignores all others."""

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    classification: int | None = None
    shared_memory_region: _Text | None = None


class _Input(_Part):
    name: _Text
    datatype: _Text
    shape: list[int]
    parameters: _Parameters = _Parameters()
    data: Any = None


class _Output(_Part):
    name: _Text
    parameters: _Parameters = _Parameters()


class _Body(_Part):
    id: _Text = ""
    parameters: _Parameters = _Parameters()
    inputs: list[_Input] = Field(max_length=FEW)
    outputs: list[_Output] = Field(default=[], max_length=FEW)


def read_infer(body: bytes, json_bytes: str | None, model: ServedModel) -> InferRequest:
    """Return what an infer request asks for; `json_bytes` is the header `LENGTH_HEADER`.

    Arrays of binary tensors are views of `body`. Raises `RequestError`.
    """
    if json_bytes == "0":
        return _read_raw(body, model)
    header, binary = _split(body, json_bytes)
    given = _parsed(header, model)
    inputs: dict[str, Array] = {}
    at = 0
    for one in given.inputs:
        tensor = checked_input(model, one.name, one.datatype, one.shape, inputs)
        size = one.parameters.binary_data_size
        if one.parameters.shared_memory_region is not None:
            raise RequestError(
                f"input {one.name!r} is in shared memory, which is not served; send its values as "
                "binary data"
            )
        if size is None:
            inputs[one.name] = array = from_numbers(tensor, one.data)
            if not _is_finite(array):
                raise RequestError(
                    f"input {one.name!r} holds a number that is not finite as {one.datatype}"
                )
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
    frames = frames_of(model, inputs)
    if at != len(binary):
        raise RequestError(f"{len(binary) - at} bytes of the body belong to no input")
    outputs, classes = _wanted(given, model)
    return InferRequest(given.id, inputs, outputs, frames, classes)


def _read_raw(body: bytes, model: ServedModel) -> InferRequest:
    """Return the request of a body that is the only input's tensor; its outputs are bytes."""
    if len(model.inputs) != 1:
        raise RequestError(
            f"{LENGTH_HEADER} is 0, so the body is the only input, but the model has "
            f"{len(model.inputs)}: {', '.join(model.inputs)}"
        )
    ((name, tensor),) = model.inputs.items()
    frames = 1
    if model.most_frames > 1 and model.frame_bytes:
        frames = min(max(1, len(body) // model.frame_bytes), model.most_frames)
    if frames > 1:
        tensor = replace(tensor, shape=(frames, *tensor.shape[1:]))
    inputs = {name: from_bytes(tensor, body)}
    return InferRequest("", inputs, dict.fromkeys(model.outputs, True), frames)


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
        return _Body.model_validate(json.loads(header, parse_constant=_refuse_constant))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the request"
        raise RequestError(f"{shortened(place)}: {shortened(first['msg'])}") from None
    except (ValueError, RecursionError) as error:  # JSON's and UTF-8's errors are ValueErrors
        raise RequestError(f"the request is not valid JSON: {shortened(str(error))}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, a number that is not finite; send it as binary data")


def _wanted(given: _Body, model: ServedModel) -> tuple[dict[str, bool], dict[str, int]]:
    """Return whether each wanted output is sent as bytes, and of how many classes."""
    usual = given.parameters.binary_data_output
    wanted: dict[str, bool] = {}
    classes: dict[str, int] = {}
    for one in given.outputs:
        name = check_output(model, one.name)
        if one.parameters.shared_memory_region is not None:
            raise RequestError(
                f"output {name!r} is wanted in shared memory, which is not served; take it as "
                "binary data"
            )
        binary = one.parameters.binary_data
        wanted[name] = usual if binary is None else binary
        if one.parameters.classification:
            classes[name] = checked_classes(name, one.parameters.classification)
    return wanted or dict.fromkeys(model.outputs, usual), classes


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
    """Return the response with a request's results. Raises `RequestError` for NaN as JSON."""
    described, parts = [], []
    for name, binary in request.outputs.items():
        array = outputs[name]
        shape, texts = list(array.shape), None
        if name in request.classes:
            count = request.classes[name]
            shape, texts = classified(array, request.frames, count, model.labels)
        datatype = DATATYPES[array.dtype.name] if texts is None else "BYTES"
        one: dict[str, object] = {"name": name, "datatype": datatype, "shape": shape}
        if binary:
            parts.append(to_bytes(array) if texts is None else texts_as_bytes(texts))
            one["parameters"] = {"binary_data_size": len(parts[-1])}
        elif texts is not None:
            one["data"] = texts
        elif not _is_finite(array):
            raise _not_finite(name, request)
        else:
            one["data"] = array.ravel().tolist()
        described.append(one)
    head: dict[str, object] = {"model_name": model.name, "model_version": model.version}
    if request.id:
        head["id"] = request.id
    header = _encoded({**head, "outputs": described})
    return Response(200, (header, *parts), len(header) if parts else None)


def _not_finite(output: str, request: InferRequest) -> RequestError:
    """Return the answer for an output that JSON cannot hold; it names an input that is like it."""
    what = f"output {output!r} holds NaN or infinity, which JSON cannot; ask for binary data"
    for name, array in request.inputs.items():
        if not _is_finite(array):
            return RequestError(f"{what} (input {name!r} holds a number that is not finite)")
    return RequestError(what, Refusal.INTERNAL)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def write_error(error: RequestError) -> Response:
    """Return the response that says what is wrong."""
    return write_json({"error": str(error)}, error.refusal.http_status)


def write_json(data: object, status: int = 200) -> Response:
    """Return a response of JSON."""
    return Response(status, (_encoded(data),))


def _encoded(data: object) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
