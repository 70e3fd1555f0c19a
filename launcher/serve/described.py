"""Describes the server and its models in the terms of the protocol, for HTTP and gRPC alike."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.serve.tensors import DATATYPES, EXTENSIONS, ServedModel
from launcher.streaming.live_model import TensorInfo

SERVER = "csdf-edge"


def server_metadata(version: str) -> dict[str, object]:
    """The server's metadata."""
    return {"name": SERVER, "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ServedModel) -> dict[str, object]:
    """The model's inputs and outputs. A dimension that varies from frame to frame is -1."""
    return {
        "name": model.name,
        "versions": [model.version],
        "platform": model.platform,
        **{
            ends: [
                {"name": t.name, "datatype": DATATYPES[t.dtype], "shape": _shape_of(t)}
                for t in tensors.values()
            ]
            for ends, tensors in (("inputs", model.inputs), ("outputs", model.outputs))
        },
    }


def _shape_of(tensor: TensorInfo) -> list[int]:
    return [-1] * len(tensor.shape) if tensor.varies else list(tensor.shape)


def model_config(model: ServedModel) -> dict[str, object]:
    """The configuration, as in Triton's extension; the batch is part of the shapes."""
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": SERVER,
        "max_batch_size": 0,
        **{
            end: [
                {"name": t.name, "data_type": f"TYPE_{DATATYPES[t.dtype]}", "dims": _shape_of(t)}
                for t in tensors.values()
            ]
            for end, tensors in (("input", model.inputs), ("output", model.outputs))
        },
    }


def model_statistics(models: Sequence[ServedModel]) -> dict[str, object]:
    """The counts, as in Triton's extension."""
    return {
        "model_stats": [
            {
                "name": model.name,
                "version": model.version,
                "inference_count": model.statistics.outcomes["success"],
                "execution_count": model.statistics.outcomes["success"],
                "inference_stats": model.statistics.durations(),
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
