"""Describes the HTTP interface for programs that read OpenAPI 3.1, at `/openapi.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Data = Mapping[str, Any]

_MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
_VERSION = {**_MODEL, "name": "version"}
_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}


def document(version: str) -> Data:
    """Return the description of a server of this version, as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "csdf-edge",
            "version": version,
            "description": "Pictures in, predictions out; and tensors by the Open Inference "
            "Protocol (KServe v2).",
        },
        "security": [{}, {"token": []}],
        "paths": {
            **_for_versions("/v1/predict/{model}", "post", _predict()),
            **_for_versions("/v2/models/{model}/infer", "post", _infer()),
            **_for_versions("/v2/models/{model}", "get", _get("Inputs and outputs of a model")),
            **_for_versions("/v2/models/{model}/config", "get", _get("Configuration of a model")),
            **_for_versions("/v2/models/{model}/stats", "get", _get("Statistics of a model")),
            **_for_versions("/v2/models/{model}/ready", "get", _health("Whether a model is ready")),
            "/v2": {"get": _get("Name, version and extensions of the server")},
            "/v2/models/stats": {"get": _get("Statistics of all models")},
            "/v2/repository/index": {"post": _get("The models that are served")},
            "/v2/health/live": {"get": _health("Whether the server runs")},
            "/v2/health/ready": {"get": _health("Whether all models compute frames")},
            "/metrics": {"get": _get("Metrics for Prometheus", "text/plain", _TEXT)},
            "/csdf-edge/v1/view": {"get": _get("What the cluster does")},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _for_versions(path: str, method: str, operation: Data) -> dict[str, Data]:
    """Return an operation at the path of a model, and at that of one of its versions."""
    longer = path.replace("{model}", "{model}/versions/{version}")
    return {
        path: {"parameters": [_MODEL], method: operation},
        longer: {"parameters": [_MODEL, _VERSION], method: operation},
    }


def _operation(summary: str, answers: Data, **more: Any) -> Data:
    refused = {
        "description": "Refused; the sentence says why and what to do",
        "content": {"application/json": {"schema": _ref("Error")}},
    }
    return {"summary": summary, **more, "responses": {**answers, "default": refused}}


def _content(description: str, content: Data) -> Data:
    return {"200": {"description": description, "content": content}}


def _get(summary: str, kind: str = "application/json", schema: Data | None = None) -> Data:
    content = {kind: {"schema": {} if schema is None else schema}}
    return _operation(summary, _content("The answer", content))


def _health(summary: str) -> Data:
    answers = {"200": {"description": "It is"}, "503": {"description": "It is not"}}
    return _operation(summary, answers)


def _predict() -> Data:
    picture = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    form = _object({"image": picture["schema"]}, "image")
    answer = {
        "application/json": {"schema": _ref("Predicted")},
        "image/jpeg": {},
        "image/png": {},
    }
    return _operation(
        "A picture in, predictions or an annotated picture out",
        _content("Predictions, or the picture with them drawn on it", answer),
        parameters=[
            {
                "name": "as",
                "in": "query",
                "description": "The form of the answer, else the header Accept decides; both is "
                "JSON with the annotated picture as a data URL",
                "schema": {"enum": ["json", "jpeg", "png", "both"]},
            }
        ],
        requestBody={
            "required": True,
            "description": "A JPEG or PNG file, as the body or as the file of a form",
            "content": {
                "image/jpeg": {},
                "image/png": {},
                "application/octet-stream": picture,
                "multipart/form-data": {"schema": form},
            },
        },
    )


def _infer() -> Data:
    return _operation(
        "Tensors in, tensors out",
        _content(
            "The outputs",
            {
                "application/json": {"schema": _ref("Inferred")},
                "application/octet-stream": {},
            },
        ),
        parameters=[
            {
                "name": "Inference-Header-Content-Length",
                "in": "header",
                "description": "Bytes of JSON before binary tensors; 0 if the body is the only "
                "input's tensor",
                "schema": _WHOLE,
            }
        ],
        requestBody={
            "required": True,
            "content": {
                "application/json": {"schema": _ref("Infer")},
                "application/octet-stream": {},
            },
        },
    )


def _ref(name: str) -> Data:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Data, *required: str) -> Data:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Data) -> Data:
    return {"type": "array", "items": items}


def _numbers(count: int) -> Data:
    return {**_list({"type": "number"}), "minItems": count, "maxItems": count}


def _schemas() -> Data:
    shape = _list(_WHOLE)
    tensor = {"name": _TEXT, "datatype": _TEXT, "shape": shape, "data": {"type": "array"}}
    parameters = {"parameters": {"type": "object"}}
    found = {"class": _WHOLE, "name": _TEXT, "score": {"type": "number"}}
    mask = _object({"size": shape, "counts": shape}, "size", "counts")
    kinds: Sequence[str] = ("classify", "detect", "segment", "pose", "obb", "semantic")
    one = {
        **found,
        "box": _numbers(4),
        "points": _list(_list({"type": "number"})),
        "corners": _list(_numbers(2)),
        "mask": mask,
    }
    scored = {**found, "share": {"type": "number"}, "mask": mask}
    return {
        "Error": _object({"error": _TEXT}, "error"),
        "Predicted": _object(
            {
                "model": _TEXT,
                "version": _TEXT,
                "name": {**_TEXT, "description": "The name of the form's file"},
                "taken_s": {"type": "number", "description": "When, in seconds since 1970"},
                "predictions": _ref("Predictions"),
                "outputs": {
                    "type": "object",
                    "description": "Instead of predictions, if the outputs have no known meaning",
                },
                "picture": {**_TEXT, "description": "The annotated picture, as a data URL"},
            },
            "model",
            "version",
        ),
        "Predictions": _object(
            {
                "kind": {"enum": list(kinds)},
                "width": _WHOLE,
                "height": _WHOLE,
                "objects": _list(_object(one, "class", "score", "box")),
                "classes": _list(_object(scored, "class")),
            },
            "kind",
        ),
        "Infer": _object(
            {
                "id": _TEXT,
                "inputs": _list(_object({**tensor, **parameters}, "name", "datatype", "shape")),
                "outputs": _list(_object({"name": _TEXT, **parameters}, "name")),
                **parameters,
            },
            "inputs",
        ),
        "Inferred": _object(
            {
                "model_name": _TEXT,
                "model_version": _TEXT,
                "id": _TEXT,
                "outputs": _list(_object({**tensor, **parameters}, "name", "datatype", "shape")),
            },
            "model_name",
            "outputs",
        ),
    }
