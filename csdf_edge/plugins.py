"""Exports what a package needs to add a kind of sink."""

from launcher.config.kinds import FileName, Secret
from launcher.sinks.base import FrameResult, ResultRefusedError, Sink, SinkConfig, SinkLostError
from launcher.sinks.result_json import result_as_json

__all__ = [
    "FileName",
    "FrameResult",
    "ResultRefusedError",
    "Secret",
    "Sink",
    "SinkConfig",
    "SinkLostError",
    "result_as_json",
]
