"""Exports what a package needs to add an engine."""

from nodes.cache.room import Room
from nodes.executors.base import (
    Engine,
    Executor,
    ExecutorError,
    InputCheck,
    LoadedSubnet,
    LoadOptions,
    OnPrepared,
    OutputAllocator,
    TensorSpec,
)
from nodes.executors.onnx.file import OnnxFile, inspect
from nodes.protocol.messages import DeviceOffer, EngineMemory, OptionOffer
from nodes.protocol.payload import Array

__all__ = [
    "Array",
    "DeviceOffer",
    "Engine",
    "EngineMemory",
    "Executor",
    "ExecutorError",
    "InputCheck",
    "LoadOptions",
    "LoadedSubnet",
    "OnPrepared",
    "OnnxFile",
    "OptionOffer",
    "OutputAllocator",
    "Room",
    "TensorSpec",
    "inspect",
]
