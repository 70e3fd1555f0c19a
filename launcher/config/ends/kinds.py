"""Lists the kinds of source and of sink: those that are built in, and those of plugins."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from launcher.config.ends.looks import source_mapping
from launcher.config.ends.sink import GROUP as SINK_GROUP
from launcher.config.ends.sink import SinkConfig
from launcher.config.ends.source import GROUP as SOURCE_GROUP
from launcher.config.ends.source import SourceConfig
from launcher.config.kinds import Kinds

SOURCES = Kinds(
    "source",
    SOURCE_GROUP,
    SourceConfig,  # type: ignore[type-abstract]
    {
        "video": "launcher.sources.video:VideoConfig",
        "folder": "launcher.sources.folder:FolderConfig",
        "stdin": "launcher.sources.stdin:StdinConfig",
    },
)


def parsed_source(value: object) -> SourceConfig:
    """Return the keys of a source from its mapping, or from a text that stands for one.

    Raises what `Kinds.parsed` raises.
    """
    return SOURCES.parsed(source_mapping(value) if isinstance(value, str) else value)


SourceValue: TypeAlias = Annotated[
    SourceConfig,
    PlainValidator(parsed_source, json_schema_input_type=dict[str, object] | str),
    PlainSerializer(SOURCES.as_written, return_type=dict[str, object]),
]
"""The value of `source:` in `input:`."""

SINKS = Kinds(
    "sink",
    SINK_GROUP,
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
