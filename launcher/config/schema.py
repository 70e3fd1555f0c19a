"""Prints the JSON schema of `cluster.yaml`, for editors: `python -m launcher.config.schema`.

The committed copy is `launcher/cluster.schema.json`; `cluster.yaml` names it in its first line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from launcher.config.cluster import ClusterConfig
from launcher.config.ends.kinds import SINKS, SOURCES
from launcher.config.network import InputConfig


def cluster_schema() -> dict[str, Any]:
    """Return the schema as JSON-like data (draft 2020-12), with the keys of sources and sinks."""
    schema = ClusterConfig.model_json_schema(mode="validation")
    form, definitions = SINKS.schema()
    schema["properties"]["sinks"] |= {"type": "array", "items": form}
    schema["$defs"] |= definitions
    form, definitions = SOURCES.schema()
    source = schema["$defs"][InputConfig.__name__]["properties"]["source"]
    source["anyOf"] = [{"type": "string"}, form, {"type": "null"}]
    schema["$defs"] |= definitions
    schema["patternProperties"] = {"^x-": {}}
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


def schema_text() -> str:
    """Return the content of the committed file."""
    return json.dumps(cluster_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
