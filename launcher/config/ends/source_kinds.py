"""Lists the kinds of source: those that are built in, and those of plugins."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import PlainSerializer, PlainValidator

from launcher.config.ends.looks import source_mapping
from launcher.config.ends.source import GROUP, SourceConfig
from launcher.config.kinds import Kinds

SOURCES = Kinds(
    "source",
    GROUP,
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
