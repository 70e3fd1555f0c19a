"""Lists the kinds of sink: those that are built in, and those of plugins."""

from __future__ import annotations

from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from launcher.config.ends.sink import GROUP, SinkConfig
from launcher.config.kinds import Kinds

SINKS = Kinds(
    "sink",
    GROUP,
    SinkConfig,  # type: ignore[type-abstract]
    {
        "npy": "launcher.sinks.npy:NpyConfig",
        "json-lines": "launcher.sinks.json_lines:JsonLinesConfig",
        "stdout": "launcher.sinks.stdout:StdoutConfig",
        "images": "launcher.sinks.images:ImagesConfig",
        "video": "launcher.sinks.video:VideoSinkConfig",
        "mqtt": "launcher.sinks.mqtt:MqttConfig",
        "webhook": "launcher.sinks.webhook:WebhookConfig",
    },
)

Sinks = tuple[
    Annotated[
        SinkConfig,
        PlainValidator(SINKS.parsed, json_schema_input_type=dict[str, object]),
        PlainSerializer(SINKS.as_written, return_type=dict[str, object]),
    ],
    ...,
]
"""The value of `sinks:`."""
