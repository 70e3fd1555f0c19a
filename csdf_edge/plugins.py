"""Exports what a package needs to add a kind of source or sink."""

from launcher.config.ends.sink import (
    FrameResult,
    PresentSink,
    ResultRefusedError,
    Sink,
    SinkConfig,
    SinkLostError,
)
from launcher.config.ends.source import (
    FrameRefusedError,
    ResumableSource,
    Source,
    SourceConfig,
    SourceFrame,
    SourceLostError,
)
from launcher.config.kinds import FileName, Secret
from launcher.errors import BadInputError
from launcher.sinks.result_json import result_as_json

__all__ = [
    "BadInputError",
    "FileName",
    "FrameRefusedError",
    "FrameResult",
    "PresentSink",
    "ResultRefusedError",
    "ResumableSource",
    "Secret",
    "Sink",
    "SinkConfig",
    "SinkLostError",
    "Source",
    "SourceConfig",
    "SourceFrame",
    "SourceLostError",
    "result_as_json",
]
