"""Prints the JSON schema of `cluster.yaml`, for editors: `python -m launcher.config.schema`.

The committed copy is `launcher/cluster.schema.json`; `cluster.yaml` names it in its first line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from launcher.config.cluster import ClusterConfig, InputConfig, ModelConfig
from launcher.config.ends.sink_kinds import SINKS
from launcher.config.ends.source_kinds import SOURCES
from launcher.config.task import TaskConfig


def cluster_schema() -> dict[str, Any]:
    """Return the schema as JSON-like data (draft 2020-12), with the short forms of mappings."""
    schema = ClusterConfig.model_json_schema(mode="validation")
    properties = schema["properties"]
    text = {"type": "string"}
    several = {"type": "array", "items": text, "minItems": 1}
    model = [text, {"$ref": f"#/$defs/{ModelConfig.__name__}"}]
    given = [text, several, {"$ref": f"#/$defs/{InputConfig.__name__}"}]
    forms: dict[str, dict[str, Any]] = {
        "model": {"anyOf": [*model, {"type": "array", "items": {"anyOf": model}, "minItems": 1}]},
        "input": {"anyOf": given},
        "inputs": {"type": "object", "additionalProperties": {"anyOf": given}},
    }
    for key, form in forms.items():
        properties[key] = {"description": properties[key]["description"], **form}
    kind = f"#/$defs/{TaskConfig.__name__}/properties/kind"
    properties["task"]["anyOf"].insert(0, {"$ref": kind})
    form, definitions = SINKS.schema()
    properties["sinks"] |= {"type": "array", "items": form}
    schema["$defs"] |= definitions
    form, definitions = SOURCES.schema()
    source = schema["$defs"][InputConfig.__name__]["properties"]["source"]
    source["anyOf"] = [text, form, {"type": "null"}]
    schema["$defs"] |= definitions
    schema["patternProperties"] = {"^x-": {}}
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def schema_text() -> str:
    """Return the content of the committed file."""
    return json.dumps(cluster_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
