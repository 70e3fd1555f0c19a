"""The JSON schema of `cluster.yaml`, for editors: `python -m launcher.schema` prints it.

The committed copy is `launcher/cluster.schema.json`; `cluster.yaml` names it in its first line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from launcher.config import ClusterConfig, InputConfig, ModelConfig


def cluster_schema() -> dict[str, Any]:
    """The schema as JSON-like data, draft 2020-12; the short forms of mappings included."""
    schema = ClusterConfig.model_json_schema(mode="validation")
    properties = schema["properties"]
    text = {"type": "string"}
    for key, model, short in (
        ("model", ModelConfig, [text]),
        ("input", InputConfig, [text, {"type": "array", "items": text, "minItems": 1}]),
    ):
        whole = {"$ref": f"#/$defs/{model.__name__}"}
        described = {name: properties[key][name] for name in ("description",)}
        properties[key] = {**described, "anyOf": [*short, whole]}
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def schema_text() -> str:
    """The schema as the committed file has it."""
    return json.dumps(cluster_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
