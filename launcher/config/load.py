"""Reads and checks `cluster.yaml`, and reports its first mistake with file, line and key.

`launcher.config.source` parses the file and `launcher.config.cluster` declares what it may hold.
This module turns pydantic's errors into sentences, checks what the models cannot (names that must
be unique, files that must exist), and resolves paths.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from launcher.config.access import DEFAULT_FOLDER, Access
from launcher.config.cluster import ClusterConfig
from launcher.config.ends.kinds import SINKS, SOURCES
from launcher.config.ends.looks import is_source
from launcher.config.kinds import file_names, key_names, model_at
from launcher.config.mistakes import no_such, problem_text, suggestion
from launcher.config.network import ONE, SEVERAL, InputConfig, ModelConfig
from launcher.config.redaction import without_password
from launcher.config.source import Location, ParsedFile, read_source
from launcher.config.task import TaskConfig
from launcher.config.units import brief
from launcher.errors import BadInputError
from nodes.protocol.messages import EngineMemory
from partition.objective import WITHIN_PERIOD

GIVEN = "the given cluster"
"""The name in messages of a configuration that no file has."""

Config = TypeVar("Config", bound=BaseModel)


def validated(source: ParsedFile) -> ClusterConfig:
    """Return the configuration in `source`; raises `BadInputError` for its first mistake.

    Keys `x-…` of the file itself hold what its anchors name, and mean nothing by themselves.
    """
    data = source.data
    if isinstance(data, dict):
        data = {key: value for key, value in data.items() if not key.startswith("x-")}
    return validated_as(replace(source, data=data), ClusterConfig, partial(_keys, data))


def validated_as(
    source: ParsedFile, model: type[Config], keys: Callable[[Location], tuple[str, ...]]
) -> Config:
    """Return the data of `source` as a `model`; `keys` returns the keys known at a location.

    Raises `BadInputError` for the first mistake.
    """
    try:
        return model.model_validate(_with_tuples(source.data))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # A list whose only members are wrong is also too short, which is not the user's mistake.
    relevant = [problem for problem in problems if problem["type"] != "too_short"] or problems
    first = min(relevant, key=lambda problem: _line(source, _location(problem)))
    location = _location(first)
    if first["type"] == "missing":
        where, missing = location[:-1], str(location[-1])
        unknown = [_location(p) for p in relevant if p["type"] == "extra_forbidden"]
        misspelt = [
            own for own in unknown if own[:-1] == where and suggestion(str(own[-1]), (missing,))
        ]
        if misspelt:
            raise source.error(misspelt[0], f"unknown key; did you mean {missing!r}?")
        raise source.error(where, f"the key {missing!r} is missing")
    location = _as_written(source.data, location)
    what = problem_text(first, location, keys)
    if (written := source.written.get(location)) is not None:
        what = what.replace(f", not {brief(first['input'])}", f", not {written}")
        if first["type"] == "string_type":
            what += "; put it in quotes"
    raise source.error(location, what)


def _with_tuples(data: object) -> object:
    """Turn lists into tuples, which strict, frozen models require."""
    if isinstance(data, dict):
        return {key: _with_tuples(value) for key, value in data.items()}
    return tuple(map(_with_tuples, data)) if isinstance(data, list) else data


def _location(problem: Mapping[str, Any]) -> Location:
    """The location in the user's file, without the tags that pydantic adds for union members."""
    given: Location = problem["loc"]
    location = tuple(part for part in given if part not in (ONE, SEVERAL, "[key]"))
    for length in range(2, len(location)):
        if location[length - 1] in ("input_shape", "mean", "std", "pad_color"):
            return location[:length]
        if location[0] == "model" and location[length - 1] == "inputs":
            return location[: length + 1]
    return location[:2] if location[:1] == ("pins",) else location


def _as_written(data: object, location: Location) -> Location:
    """The location of a text that stands for a mapping: `task` in place of `task.kind`."""
    for length, part in enumerate(location):
        if isinstance(data, str):
            return location[:length]
        try:
            data = data[part]  # type: ignore[index]
        except (LookupError, TypeError):
            break
    return location


def _line(source: ParsedFile, location: Location) -> int:
    while location and location not in source.lines:
        location = location[:-1]
    return source.lines.get(location, 0)


def _keys(data: object, location: Location) -> tuple[str, ...]:
    if location[:1] == ("sinks",):
        return SINKS.keys(_at(data, location))
    if location[-1:] == ("source",):
        return SOURCES.keys(_at(data, location))
    model = model_at(ClusterConfig, location)
    return () if model is None else key_names(model)


def _at(data: Any, location: Location) -> object:
    for part in location:
        data = data[part]
    return data


_SCHEME = re.compile(r"[a-z][a-z0-9-]+:")
"""The beginning of a model that is not a file: `onnx-wheel:`, `builtin:`."""

_FOLDER = re.compile(r"[^/.\0][^/\0]{0,99}")
"""A name that a folder can have."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A network that `cluster.yaml` names: its name, its path (or `onnx-wheel:NAME`), its other
    keys, and its location in the file."""

    name: str
    path: str
    config: ModelConfig
    location: Location


@dataclass(frozen=True)
class Cluster:
    """A configuration, the file that it was read from, and the folder of its relative paths.

    `engine_memory` is what the engines of nodes take, by node, where their agents have said so.
    """

    config: ClusterConfig
    source: ParsedFile
    folder: Path
    engine_memory: Mapping[str, EngineMemory] = field(default_factory=dict)

    def path(self, text: str) -> Path:
        """Resolve a path of the file, so that it can be opened from the current directory."""
        return self.folder / os.path.expanduser(text)

    def task_of(self, network: str) -> TaskConfig | None:
        """Return what the user says about the outputs of a network; None if nothing."""
        return self.config.tasks.get(network, self.config.task)

    def task_key(self, network: str) -> Location:
        """Return where the user says it, or may say it."""
        own = ("tasks", network)
        return own if own in self.source.lines else ("task",)

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """All networks, in the user's order."""
        several = isinstance(self.config.model, tuple)
        found = []
        for index, model in enumerate(self.config.models):
            text = model.path
            is_file = is_file_name(text)
            found.append(
                ModelFile(
                    model.name or (Path(text).stem if is_file else text.partition(":")[2]),
                    str(self.path(text)) if is_file else text,
                    model,
                    ("model", index) if several else ("model",),
                )
            )
        return tuple(found)

    @property
    def model(self) -> str:
        """The model as the user wrote it, such as `onnx-wheel:resnet50`; several joined by `+`."""
        return "+".join(model.path for model in self.models)

    @property
    def access(self) -> Access:
        """The keys with which its nodes are reached."""
        named = self.config.keys
        folder = self.path(named or DEFAULT_FOLDER)
        return Access(
            folder,
            is_named=named is not None,
            insecure=self.config.insecure,
            file=Path(self.source.name),
        )

    def changed(self, **values: Any) -> Cluster:
        """Return a copy in which some keys have other values, which must be valid."""
        return replace(self, config=self.config.model_copy(update=values))

    def error(self, location: Location, what: str) -> BadInputError:
        """Return the error `cluster.yaml, line 7, nodes[1].memory: WHAT`, to be raised."""
        return self.source.error(location, what)


def load_cluster(path: Path, name: str | None = None, *, may_be_pipe: bool = True) -> Cluster:
    """Read and check a `cluster.yaml`, which messages call `name`; raises `BadInputError`.

    See `checked_cluster`.
    """
    if path.suffix.lower() == ".onnx" and path.is_file():
        raise BadInputError(
            f"{name or path}: is a model; name a cluster.yaml instead, a file with the keys model "
            f"and nodes, such as `model: {path.name}` and `nodes: [{{name: a}}, {{name: b}}]`"
        )
    return checked_cluster(read_source(path, name, may_be_pipe=may_be_pipe), path.parent)


def cluster_from(given: Mapping[str, Any] | ClusterConfig, folder: Path) -> Cluster:
    """Check what a program gives in place of a `cluster.yaml`; relative paths are in `folder`.

    Paths may be `Path`s, and lists tuples. Raises `BadInputError`, as `checked_cluster` does.
    """
    if isinstance(given, ClusterConfig):
        return _checked(Cluster(given, ParsedFile(GIVEN, {}, {}), folder))
    return checked_cluster(ParsedFile(GIVEN, _plain(given), {}), folder)


def _plain(value: object) -> object:
    """Return a program's value as a file would have it."""
    match value:
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case os.PathLike():
            return os.fspath(value)
        case _:
            return value


def checked_cluster(source: ParsedFile, folder: Path) -> Cluster:
    """Check what a `cluster.yaml` holds, whose relative paths are in `folder`.

    The files that it names must exist. The strategy and the pinned layers are checked later, when
    the strategies are imported and the network is read (`launcher.plan.settings`). Raises
    `BadInputError`.
    """
    if not isinstance(source.data, dict):
        raise source.error(
            (), "must be a mapping with the keys model and nodes; see docs/cluster-yaml.md"
        )
    return _checked(Cluster(validated(source), source, folder))


def _checked(cluster: Cluster) -> Cluster:
    _check_nodes(cluster)
    _check_pins(cluster)
    _check_standby(cluster)
    _check_models(cluster)
    _check_files(cluster)
    _check_sinks(cluster)
    if cluster.config.insecure and cluster.config.keys is not None:
        raise cluster.error(("insecure",), "contradicts `keys`; remove one of the two")
    given = cluster.config.model_fields_set
    if "within" in given and cluster.config.objective not in WITHIN_PERIOD:
        raise cluster.error(
            ("within",),
            f"has no effect with objective: {cluster.config.objective}; remove it, or write "
            "objective: both or objective: paper",
        )
    inputs = (cluster.config.input, *cluster.config.inputs.values())
    has_source = any(each.source is not None for each in inputs)
    for key in ("on_overload", "queue_frames"):
        if cluster.config.rate is None and not has_source and key in given:
            raise cluster.error(
                (key,),
                "has no effect without `rate`, the frames per second, or a source; add one or "
                "remove it",
            )
    return cluster


def is_file_name(model: str) -> bool:
    """Whether a model is a file, and not a name such as `onnx-wheel:resnet50`."""
    return not _SCHEME.match(model)


def matching_files(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Return the files that match a glob or path relative to `folder`, sorted by path.

    Names that exist stand for themselves, such as the folder `cam[1]` of `cam[1]/*.npy`.
    """
    known, parts = Path(), []
    for part in (folder / os.path.expanduser(pattern)).parts:
        known /= part
        parts.append(glob.escape(part) if known.exists() else part)
    found = map(Path, glob.glob(str(Path(*parts)), recursive=True))
    return tuple(sorted(path for path in found if path.is_file()))


def unmatched(folder: Path, pattern: str) -> str:
    """Say why a pattern matches no file, and what to do; the text follows the name of its key."""
    whole = folder / os.path.expanduser(pattern)
    if whole.is_dir():
        return (
            f"{str(whole)!r} is a folder; name its files, such as {pattern.rstrip('/')}/*.png, or "
            f"write input: {{source: {pattern}}} to watch it"
        )
    if is_source(pattern):
        return f"{without_password(pattern)!r} is a source, of which there can be only one"
    return f"no file matches {str(whole)!r}; check the path"


def _check_nodes(cluster: Cluster) -> None:
    for key in ("name", "address"):
        seen: dict[str, int] = {}
        for index, node in enumerate(cluster.config.nodes):
            value = getattr(node, key)
            if value is not None and value in seen:
                first = cluster.source.place(("nodes", seen[value], key))
                raise cluster.error(
                    ("nodes", index, key),
                    f"{value!r} is already the {key} of the node {first}; each node needs its own "
                    f"{key}",
                )
            if value is not None:
                seen[value] = index


def _check_standby(cluster: Cluster) -> None:
    standby = [node.name for node in cluster.config.nodes if node.standby]
    if len(standby) == len(cluster.config.nodes):
        raise cluster.error(
            ("nodes",), "all nodes stand by; remove `standby: true` from at least one"
        )
    for pattern, node in cluster.config.pins.items():
        if node in standby:
            raise cluster.error(
                ("pins", pattern),
                f"node {node!r} stands by until another one is lost; pin the layer to another "
                "node, or remove its `standby: true`",
            )


def _check_pins(cluster: Cluster) -> None:
    names = [node.name for node in cluster.config.nodes]
    for pattern, node in cluster.config.pins.items():
        if node not in names:
            raise cluster.error(("pins", pattern), no_such("node", node, names))


def _check_models(cluster: Cluster) -> None:
    models = cluster.models
    names = [model.name for model in models]
    for number, model in enumerate(models):
        if len(models) > 1 and not _FOLDER.fullmatch(model.name):
            raise cluster.error(
                model.location,
                f"the results of a network go to a folder of its name, and {brief(model.name)} "
                f"cannot be a folder's name; give it another: {{path: {model.config.path}, "
                "name: …}",
            )
        if model.name in names[:number]:
            location = (*model.location, "name")
            raise cluster.error(
                location if location in cluster.source.lines else model.location,
                f"another network is already called {model.name!r}; give this one another name: "
                f"{{path: {model.config.path}, name: …}}",
            )
    for name in cluster.config.inputs:
        if name not in names:
            raise cluster.error(("inputs", name), no_such("network", name, names))
    for name in cluster.config.tasks:
        if name not in names:
            raise cluster.error(("tasks", name), no_such("network", name, names))
    for key in ("labels", "truth", "task"):
        if len(models) > 1 and getattr(cluster.config, key) is not None:
            remedy = "write it under tasks, by the network's name" if key == "task" else "remove it"
            raise cluster.error((key,), f"is possible only with one network; {remedy}")


def _check_files(cluster: Cluster) -> None:
    for model in cluster.models:
        if is_file_name(model.config.path):
            within = (*model.location, "path")
            location = within if within in cluster.source.lines else model.location
            _must_be_file(cluster, location, Path(model.path))
    for key in ("labels", "truth"):
        text = getattr(cluster.config, key)
        if text is not None:
            _must_be_file(cluster, (key,), cluster.path(text))
    _check_input(cluster, cluster.config.input, ("input",))
    for name, given in cluster.config.inputs.items():
        _check_input(cluster, given, ("inputs", name))


def _check_sinks(cluster: Cluster) -> None:
    seen: dict[Path, int] = {}
    names = [model.name for model in cluster.models]
    for index, sink in enumerate(cluster.config.sinks):
        if sink.network is not None and sink.network not in names:
            raise cluster.error(
                ("sinks", index, "network"),
                no_such("network", sink.network, names),
            )
        for key, name in file_names(sink, written=True).items():
            path = Path(os.path.abspath(cluster.path(name)))
            if path in seen:
                first = cluster.source.place(("sinks", seen[path]))
                raise cluster.error(
                    ("sinks", index, key), f"the sink {first} writes to it; name another"
                )
            seen[path] = index


def _check_input(cluster: Cluster, given: InputConfig, at: Location) -> None:
    if given.is_random:
        return
    for index, pattern in enumerate(given.files):
        if not matching_files(cluster.folder, pattern):
            candidates = ((*at, "files", index), (*at, index), (*at, "files"), at)
            location = next((place for place in candidates if place in cluster.source.lines), at)
            raise cluster.error(location, unmatched(cluster.folder, pattern))


def _must_be_file(cluster: Cluster, location: Location, path: Path) -> None:
    if path.is_dir():
        raise cluster.error(location, f"{str(path)!r} is a folder; name a file")
    if not path.exists():
        raise cluster.error(location, f"there is no file {str(path)!r}; check the path")
    if not path.is_file():
        raise cluster.error(location, f"{str(path)!r} is not a regular file; name another")
