"""Finds engines by name, built in or from plugins, and opens their executors.

A plugin is a package with an entry point of the group `csdf_edge.executors`, whose name is the
engine's and whose value is a class like the built-in ones (`nodes.executors.base.Engine`). Built-in
engines are listed here in the same form, because the module that reads entry points takes 1.6 MB of
an agent's memory; it is imported only where an installed package names the group.

A plugin that cannot be imported affects only users who ask for its engine.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import astuple
from functools import cache as memoised
from importlib import import_module
from pathlib import Path

from nodes.cache.room import Room
from nodes.core.engines import AUTO, EngineLackingError, resolve
from nodes.executors.base import Engine, Executor, ExecutorError
from nodes.executors.onnx.engine import ProviderEngine, provider_called, provider_names
from nodes.executors.preparing.entries import PreparedFiles
from nodes.executors.tensor_rt.engine import tensorrt_missing
from nodes.host.heap import keep_one_heap
from nodes.protocol.messages import EngineChoice, EngineMemory, EngineOffer, OptionOffer

GROUP = "csdf_edge.executors"
"""The group of entry points by which packages add engines."""

BUILT_IN = {
    "tensorrt": "nodes.executors.tensor_rt.engine:TensorRtEngine",
    "onnxruntime": "nodes.executors.onnx.engine:OnnxRuntimeEngine",
    "openvino": "nodes.executors.openvino.engine:OpenVinoEngine",
    "tvm": "nodes.executors.tvm.engine:TvmEngine",
}
"""The place of each built-in engine. `auto` takes the first that can be used, then ONNX Runtime's
other execution providers, then plugins. TensorRT as a provider of ONNX Runtime comes after ONNX
Runtime.
"""

_NOTING = ("tensorrt", "onnxruntime")
"""The built-in engines that test devices, which takes seconds, and keep notes of that."""

AMBIGUOUS = ""
"""Stands in place of an engine's place if two packages name different ones."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def offers(only: str = AUTO, notes: PreparedFiles | None = None) -> tuple[EngineOffer, ...]:
    """Return what each engine offers on this machine, in the order in which `auto` prefers them.

    With `only`, the others are left out. `notes` is where the results of tests of devices are kept.
    Raises ExecutorError if there is no engine of that name.
    """
    names = engine_names()
    if provider_called(only) is not None:
        names = (only,)
    if only != AUTO and only not in names:
        raise ExecutorError(
            f"there is no engine {only!r}; the engines are {', '.join((AUTO, *names))}"
        )
    return tuple(_offer(name, notes) for name in names if only in (AUTO, name))


def _offer(name: str, notes: PreparedFiles | None) -> EngineOffer:
    try:
        engine = find_engine(name, notes)
        if (missing := engine.missing()) is not None:
            return EngineOffer(name, missing)
        options = tuple(engine.options)
        if not all(isinstance(option, OptionOffer) for option in options):
            raise TypeError("its `options` are not all of the class OptionOffer")
        return EngineOffer(name, "", engine.devices(), options, _memory(engine))
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything
        return EngineOffer(name, f"its package is broken: {error}")


def _memory(engine: Engine) -> EngineMemory:
    """Return the memory that an engine declares, or else ONNX Runtime's."""
    declared = getattr(engine, "memory", EngineMemory())
    if not isinstance(declared, EngineMemory) or min(astuple(declared)) < 0:
        raise ExecutorError(f"its memory must be an EngineMemory of sizes in bytes, not {declared}")
    return declared


def memory_on(offer: EngineOffer, notes: PreparedFiles | None = None) -> EngineMemory:
    """Return the memory that an agent takes which computes on an offer's first device.

    An engine may say so for each device by a method `memory_on`, because the driver of a GPU takes
    much that is not declared by `memory`.
    """
    if not offer.devices or offer.devices[0].device == "cpu":
        return offer.memory
    engine = find_engine(offer.engine, notes)
    declared: EngineMemory = getattr(engine, "memory_on", lambda _: offer.memory)(
        offer.devices[0].device
    )
    return declared


def engine_names() -> tuple[str, ...]:
    """Return the names of all engines, those of plugins last."""
    built_in = sorted(
        BUILT_IN, key=lambda name: name == "tensorrt" and tensorrt_missing() is not None
    )
    plugins = {name for name in _plugins() if name not in BUILT_IN and not provider_called(name)}
    return (*built_in, *provider_names(), *sorted(plugins))


def find_engine(name: str, notes: PreparedFiles | None = None) -> Engine:
    """Return the engine of that name; raises ExecutorError if its package is broken."""
    if (provider := provider_called(name)) is not None:
        return ProviderEngine(provider, notes)
    place = BUILT_IN.get(name) or _plugins()[name]
    if place == AMBIGUOUS:
        raise ExecutorError(f"two packages have an engine called {name!r}; uninstall one")
    module, _, attribute = place.partition(":")
    try:
        made = getattr(import_module(module), attribute)
        engine: Engine = made(notes) if name in _NOTING else made()
    except Exception as error:
        raise ExecutorError(
            f"the engine {name!r} cannot be imported from {place}: {error}"
        ) from error
    return engine


def open_executor(
    name: str, cache: Path, *, device: str = AUTO, room: Room | None = None
) -> Executor:
    """Open the executor of the engine called `name`, which keeps prepared subnets under `cache`.

    `auto` is the first engine that can be used and has the `device`; of the device, it is the first
    that the engine has. `room` bounds the cache if given. Call this before starting threads
    (`keep_one_heap`). Raises ExecutorError with the package to install if the engine or the device
    is missing.
    """
    choice = chosen(EngineChoice(name, device, AUTO), offers(name))
    return open_chosen(choice, cache, room)


def chosen(choice: EngineChoice, among: tuple[EngineOffer, ...]) -> EngineChoice:
    """Return `choice` with names for all that is `auto`; raises ExecutorError if this machine lacks
    it."""
    try:
        return resolve(choice, among)
    except EngineLackingError as error:
        raise ExecutorError(f"this machine {error}") from error


def open_chosen(choice: EngineChoice, cache: Path, room: Room | None) -> Executor:
    """Open the executor of a choice in which nothing is `auto`."""
    keep_one_heap()
    return find_engine(choice.engine).open(cache, choice.device, room)


@memoised
def _plugins() -> dict[str, str]:
    """Return the places of the engines of other packages, by name."""
    if not any(_names_group(file) for file in _entry_point_files()):
        return {}
    from importlib.metadata import entry_points  # noqa: PLC0415 - see the module's docstring

    found: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        if _NAME.fullmatch(point.name):
            is_other = found.get(point.name, point.value) != point.value
            found[point.name] = AMBIGUOUS if is_other else point.value
    return found


def _entry_point_files() -> Iterator[Path]:
    for place in sys.path:
        yield from Path(place or ".").glob("*.*-info/entry_points.txt")


def _names_group(file: Path) -> bool:
    try:
        return f"[{GROUP}]" in file.read_text("utf-8")
    except (OSError, ValueError):
        return False
