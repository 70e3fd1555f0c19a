"""Turns a cluster.yaml into a generation of the service: checks it, and copies its models.

Every model of a generation runs by itself, with its own plan on the same nodes. A copy of its files
is kept, so that a rollback has them even where the user has overwritten them. Everything on which a
model's deployment depends has a digest: where that stays the same, the model runs on undisturbed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cnn.errors import CnnError
from cnn.merge import SEPARATOR
from cnn.reading.regular_files import open_regular
from cnn.reading.source import model_files
from launcher.clock import now_s
from launcher.config.load import (
    Cluster,
    ModelFile,
    checked_cluster,
    is_file_name,
    load_cluster,
)
from launcher.config.network import RANDOM, InputConfig, ModelConfig
from launcher.config.source import parse_source
from launcher.errors import BadInputError
from launcher.files import with_advice
from launcher.plan.devices import nodes_of
from launcher.plan.engines import check_precisions
from launcher.plan.files import cluster_text
from launcher.plan.planner import Planner
from launcher.plan.settings import check_strategy, read_model, wire_of
from launcher.serve.listening import check_stateless, tls_files
from launcher.serve.served_sinks import network_of
from launcher.service.events import ModelRelease
from launcher.service.store import APPLIED, DRAFT, Generation, KeptModel, Store
from launcher.sinks.opening import open_sinks
from launcher.sources.opening import open_source

_OF_RUNS = {"input", "inputs", "frames", "rate", "on_overload", "queue_frames", "journal",
            "labels", "truth", "sinks", "reconnect", "task", "serve", "model", "pins"}  # fmt: skip
"""Keys on which the deployment of a served model does not depend, or not in this form."""

_OF_ENDS = {"input", "frames", "rate", "on_overload", "queue_frames", "sinks", "reconnect", "task"}
"""Keys of a source and its sinks, and of what is between them and the network."""

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class NextGeneration:
    """A cluster.yaml that was checked and whose models are kept; it is not applied yet."""

    generation: Generation
    notes: tuple[str, ...]
    """Notes on changes that do not take effect at once."""


def read_generation(
    path: Path, store: Store, known: list[Generation], *, may_be_pipe: bool = False
) -> NextGeneration:
    """Read and check a cluster.yaml, and copy its models into the store's folder.

    `known` are the kept generations, of which the last one is the present one. A running service
    reads regular files only, because a pipe would keep it waiting. Raises `BadInputError` for the
    first mistake; nothing is changed then.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BadInputError(
            f"{path}: its name or a folder's is not UTF-8 text, and cannot be noted; rename it"
        ) from None
    cluster = load_cluster(path, may_be_pipe=may_be_pipe)
    _check(cluster)
    former = known[-1] if known else None
    kept = [_kept(cluster, model, store.files) for model in cluster.models]
    entries = []
    for model, (files, inside) in zip(cluster.models, kept, strict=True):
        config = _kept_config(model, store.files, files, inside)
        single = _single(cluster, model.name, config)
        keys = model.config.model_dump(mode="json", exclude={"path", "name", "version"})
        content = _digest([files or model.path, keys])
        digest = _digest([content, str(model.config.version), _deployment_keys(single)])
        entry = KeptModel(model.name, str(model.config.version), digest, content, files)
        _check_version(cluster, model, entry, known)
        if not any(entry in generation.models for generation in known):
            _ = Planner(single, read_model(single)).planned  # it refuses models without batches
        entries.append((entry, config))
    changed = cluster.changed(
        model=tuple(config for _, config in entries)
        if isinstance(cluster.config.model, tuple)
        else entries[0][1],
        input=_source_of(cluster.config.input),
        inputs={name: _source_of(given) for name, given in cluster.config.inputs.items()},
        labels=None,
        truth=None,
        journal=None,
    )
    generation = Generation(
        1 if former is None else former.number + 1,
        now_s(),
        str(path.absolute()),
        cluster_text(changed, keeps_token=True),
        tuple(entry for entry, _ in entries),
        {node.name: node.address for node in cluster.config.nodes},
    )
    return NextGeneration(generation, _notes(cluster, former, store))


def _check(cluster: Cluster) -> None:
    """Raise `BadInputError` for a cluster that could not be served."""
    _check_ends(cluster)
    check_stateless(cluster)
    check_strategy(cluster)
    check_precisions(cluster)
    wire_of(cluster)
    nodes_of(cluster)
    tls_files(cluster, cluster.config.serve)
    if (unsafe := cluster.config.serve.what_is_unsafe()) is not None:
        raise cluster.error(("serve",), unsafe)
    if len(cluster.models) > 1:
        names = [model.name for model in cluster.models]
        for pattern in cluster.config.pins:
            if pattern.partition(SEPARATOR)[0] not in names:
                raise cluster.error(
                    ("pins", pattern),
                    f"of several networks, a layer is called NETWORK{SEPARATOR}LAYER; the networks "
                    f"are {', '.join(names)}",
                )


def _check_ends(cluster: Cluster) -> None:
    """Raise `BadInputError` for a source or a sink that can never be used."""
    with ExitStack() as stack:
        for index, (_, sink) in enumerate(open_sinks(cluster)):
            stack.callback(sink.close)
            given = _input_of(cluster, network_of(cluster, index))
            if sink.needs_image and given.source is None:
                raise cluster.error(
                    ("sinks", index), "needs images, but requests have the network's inputs instead"
                )
        for model in cluster.models:
            if _input_of(cluster, model.name).source is not None:
                own = ("inputs", model.name) if model.name in cluster.config.inputs else ("input",)
                where = cluster.source.where(own)
                given = _input_of(cluster, model.name)
                stack.callback(open_source(given, cluster.folder, where).close)


def _input_of(cluster: Cluster, model: str) -> InputConfig:
    return cluster.config.inputs.get(model, cluster.config.input)


def _source_of(given: InputConfig) -> InputConfig:
    """Return the input of a served model, which has frames of a source and of requests only."""
    return given.model_copy(update={"files": (RANDOM,)}) if given.source is None else given


def _check_version(
    cluster: Cluster, model: ModelFile, entry: KeptModel, known: list[Generation]
) -> None:
    """Raise `BadInputError` if the version's number belongs to another content already."""
    for generation in known:
        for other in generation.models:
            same = (other.name, other.version) == (entry.name, entry.version)
            if same and other.content != entry.content:
                taken = {int(m.version) for g in known for m in g.models if m.name == entry.name}
                raise cluster.error(
                    model.location,
                    f"{model.name} differs from its version {entry.version} in generation "
                    f"{generation.number}; write version: {max(taken) + 1}",
                )


def _notes(cluster: Cluster, former: Generation | None, store: Store) -> tuple[str, ...]:
    if former is None:
        return ()
    before = cluster_of(store, former).config.serve
    if before == cluster.config.serve:
        return ()
    return ("the section serve is read when the service starts: launch down and up again",)


# ------------------------------------------------------------ a generation's clusters


def cluster_of(store: Store, generation: Generation) -> Cluster:
    """Read a generation's cluster.yaml again; raises `BadInputError`."""
    return checked_cluster(
        parse_source(generation.text, f"generation {generation.number}"), store.folder
    )


def rollback_target(known: Sequence[Generation], to: int | None) -> Generation:
    """Return the generation to go back to: that of the number, or the last one that has served and
    differs from the present one.

    A rollback that has not served yet is the present one itself, which is tried again: what it was
    to replace still serves, and a second request means the same. Raises `BadInputError`.
    """
    present = known[-1]
    if to is None:
        if present.origin != APPLIED and not present.has_served:
            return present
        for generation in reversed(known):
            is_same = (generation.models, generation.text) == (present.models, present.text)
            if generation.has_served and not is_same:
                return generation
        raise BadInputError(
            "no earlier generation that is kept has served and differs from the present one; use "
            "launch apply to change the service"
        )
    for generation in known:
        if generation.number == to:
            return generation
    numbers = ", ".join(str(generation.number) for generation in known)
    raise BadInputError(f"generation {to} is not kept; these are: {numbers}")


def release_cluster(store: Store, known: list[Generation], release: ModelRelease) -> Cluster:
    """Return the cluster that runs a release alone; raises `BadInputError`."""
    cluster, config = _latest(store, known, release)
    return _single(cluster, release.model, config)


def picture_cluster(store: Store, known: list[Generation], release: ModelRelease) -> Cluster:
    """Return the cluster whose input and task say how pictures are read for a release.

    Raises `BadInputError`.
    """
    cluster, config = _latest(store, known, release)
    given = _input_of(cluster, release.model)
    return _single(cluster, release.model, config).changed(input=given)


def _latest(
    store: Store, known: list[Generation], release: ModelRelease
) -> tuple[Cluster, ModelConfig]:
    """Return the cluster of the last generation that has a release, and the model's keys there."""
    for generation in reversed(known):
        for model in generation.models:
            if (model.name, model.digest) == (release.model, release.digest):
                cluster = cluster_of(store, generation)
                return cluster, next(m.config for m in cluster.models if m.name == model.name)
    raise BadInputError(f"{release}: no generation has it any more")


def _single(cluster: Cluster, name: str, config: ModelConfig) -> Cluster:
    """Return the cluster with one of its models only."""
    prefix = f"{name}{SEPARATOR}"
    pins = cluster.config.pins
    if len(cluster.models) > 1:
        pins = {
            pattern.removeprefix(prefix): node
            for pattern, node in pins.items()
            if pattern.startswith(prefix)
        }
    return cluster.changed(model=config, pins=pins, inputs={}, task=cluster.task_of(name), tasks={})


def ends_of(cluster: Cluster, model: ModelFile) -> Cluster | None:
    """Return a generation's cluster with the source and the sinks of one of its models only; None
    if it has neither."""
    given, several = _input_of(cluster, model.name), len(cluster.models) > 1
    sinks = cluster.config.sinks
    own = tuple(sink for sink in sinks if not several or sink.network == model.name)
    if given.source is None and not own:
        return None
    return _single(cluster, model.name, model.config).changed(input=given, sinks=own)


def ends_key(cluster: Cluster) -> str:
    """Return what differs if a source or its sinks have to be opened again.

    `cluster` has those of one model alone, so it does not matter whether sinks name it.
    """
    data = cluster.config.model_dump(mode="json", include=_OF_ENDS)
    sinks = [{**sink, "network": None} for sink in data.pop("sinks", ())]
    return json.dumps({**data, "sinks": sinks}, sort_keys=True)


def _deployment_keys(cluster: Cluster) -> Mapping[str, Any]:
    """Everything but the model's content that its deployment depends on."""
    data = cluster.config.model_dump(mode="json", exclude=_OF_RUNS)
    data["pins"] = cluster.config.pins
    data["most_in_flight"] = cluster.config.serve.most_in_flight
    data["keys"] = str(cluster.access.keys.absolute())
    if cluster.config.profile is not None:
        path = cluster.path(cluster.config.profile)
        try:
            data["profile"] = _file_digest(path)
        except OSError as error:
            raise cluster.error(("profile",), f"{path}: cannot be read: {error.strerror}") from None
    return data


def _digest(data: object) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------ files


def _kept(cluster: Cluster, model: ModelFile, folder: Path) -> tuple[str, str]:
    """Copy a model's files into a folder that is named by their contents.

    Returns the names of that folder and of the model's file in it; empty for a built-in network.
    """
    if not is_file_name(model.config.path):
        return "", ""
    path = Path(model.path)
    try:
        files = model_files(path)
        digests = {name: _file_digest(file) for name, file in files.items()}
        named = _digest(digests)
        if not (folder / named).is_dir():
            _copy(files, folder / named)
    except CnnError as error:
        raise cluster.error(model.location, str(error)) from error
    except OSError as error:
        what = with_advice(error, "move the state folder to another disk while no service runs")
        raise cluster.error(model.location, f"{error.filename}: {what}") from error
    return named, path.name


def _copy(files: Mapping[str, Path], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=DRAFT) as folder:
        draft = Path(folder) / target.name
        for name, file in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, draft / name)
            with (draft / name).open("rb") as copy:
                os.fsync(copy.fileno())
        draft.replace(target)


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()


def _kept_config(model: ModelFile, folder: Path, files: str, inside: str) -> ModelConfig:
    path = str((folder / files / inside).absolute()) if files else model.config.path
    return model.config.model_copy(update={"path": path, "name": model.name})
