"""Profile files: what was measured on which nodes, as readable JSON, and who may use it.

A profile holds for one model (by digest) and for the nodes that it was measured on: their names,
machines, engines and threads. Whatever else it is offered to is refused by name.

Measurements of earlier times, kept under `$XDG_CACHE_HOME/csdf-edge-profiles`.

A node's are named by the digest of the model, of what the node is, and of nothing else: nodes that
are alike on one machine share them. A file that is damaged or of another format counts as missing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from launcher.errors import BadInputError
from launcher.files import cannot_write, read_json, read_small, write_whole
from launcher.profile.choice import Choice
from partition.measured.profiles import LinkProfile, NodeProfile, Profile, SubnetTime

FORMAT = 1
"""Of profile files; raised when an old one could be misread."""

Seconds = Annotated[float, Field(ge=0)]


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class NodeIdentity(_FileModel):
    """What a node's times depend on: `host` and `threads` and `cpus` are those of `cluster.yaml`
    (the launcher's own host name for agents that it starts), the others the agent's own words."""

    host: str
    threads: int
    cpus: tuple[int, ...]
    machine: str
    cores: int
    engine: str
    version: str

    def difference(self, other: NodeIdentity) -> str | None:
        """The first thing that differs, as `machine 'A', not 'B'`; None if nothing does."""
        for key in type(self).model_fields:
            mine, its = getattr(self, key), getattr(other, key)
            if mine != its:
                return f"{key} {mine!r}, not {its!r}"
        return None


class SubnetEntry(_FileModel):
    """See `partition.measured.profiles.SubnetTime`."""

    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rewrites: str = ""
    seconds: Annotated[float, Field(gt=0)]


class NodeTimes(_FileModel):
    """See `partition.measured.profiles.NodeProfile`."""

    layer_s: dict[str, Seconds]
    subnets: tuple[SubnetEntry, ...] = ()
    message_s: Seconds = 0.0
    byte_s: Seconds = 0.0
    busy_w: Seconds | None = None
    idle_w: Seconds | None = None
    batches: tuple[tuple[Annotated[int, Field(ge=1)], Seconds], ...] = ()

    @classmethod
    def of(cls, node: NodeProfile) -> NodeTimes:
        """As data."""
        return cls(
            layer_s=dict(node.layer_s),
            subnets=tuple(
                SubnetEntry(
                    layers=subnet.layers,
                    inputs=subnet.inputs,
                    outputs=subnet.outputs,
                    rewrites=subnet.rewrites,
                    seconds=subnet.seconds,
                )
                for subnet in node.subnets
            ),
            message_s=node.message_s,
            byte_s=node.byte_s,
            busy_w=node.busy_w,
            idle_w=node.idle_w,
            batches=node.batches,
        )

    def profile(self) -> NodeProfile:
        """The same for the cost model."""
        subnets = tuple(
            SubnetTime(s.layers, s.inputs, s.outputs, s.rewrites, s.seconds) for s in self.subnets
        )
        return NodeProfile(
            self.layer_s,
            subnets,
            self.message_s,
            self.byte_s,
            self.busy_w,
            self.idle_w,
            self.batches,
        )


class NodeEntry(_FileModel):
    """A node: what it is, and what was measured on it."""

    identity: NodeIdentity
    measured: NodeTimes


class LinkEntry(_FileModel):
    """See `partition.measured.profiles.LinkProfile`."""

    ends: tuple[str, str]
    latency_s: Seconds
    bytes_per_s: Annotated[float, Field(gt=0)] | None


class ProfileFile(_FileModel):
    """A whole profile; `energy` says where watts are from, `choice` which plan the measurements are
    in favour of."""

    format: Literal[1] = 1
    model: str
    model_digest: str
    energy: str
    nodes: dict[str, NodeEntry]
    links: tuple[LinkEntry, ...] = ()
    choice: Choice | None = None

    def profile(self) -> Profile:
        """The same for the cost model."""
        links = tuple(LinkProfile(x.ends, x.latency_s, x.bytes_per_s) for x in self.links)
        return Profile({name: e.measured.profile() for name, e in self.nodes.items()}, links)

    def check(self, where: str, model: str, digest: str, nodes: Mapping[str, NodePart]) -> None:
        """Refuse a profile that is not of this model and these nodes: raises `BadInputError`.

        `nodes` are the nodes that it is to be used for, as far as they are known.
        """
        again = "measure anew with csdf-edge partition profile"
        if digest != self.model_digest:
            what = f"another model ({self.model}) than {model}"
            if model == self.model:
                what = f"another {model}, whose file has been changed since"
            raise BadInputError(f"{where}: is a profile of {what}; {again}")
        for name, known in nodes.items():
            entry = self.nodes.get(name)
            if entry is None:
                raise BadInputError(
                    f"{where}: node {name!r} was not measured, but {', '.join(self.nodes)}; {again}"
                )
            difference = entry.identity.difference(known.completed(entry.identity))
            if difference is not None:
                raise BadInputError(
                    f"{where}: was measured on another node {name!r}: {difference}; {again}"
                )


class NodePart(_FileModel):
    """What is known of a node without asking its agent."""

    host: str
    threads: int
    cpus: tuple[int, ...]

    def completed(self, by: NodeIdentity) -> NodeIdentity:
        """Return the whole identity, with what the agent would say taken from `by`."""
        return by.model_copy(update=self.model_dump())


class WholeNode(NodePart):
    """What is known of a node whose agent was asked."""

    machine: str
    cores: int
    engine: str
    version: str


def read_profile(path: Path) -> ProfileFile:
    """Read a profile file; raises `BadInputError` in a sentence."""
    _, data = read_json(
        path, missing="there is no such profile; make it with csdf-edge partition profile"
    )
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise BadInputError(
            f"{path}: is no profile that this version reads (format {FORMAT}); "
            "make it with csdf-edge partition profile"
        )
    try:
        return ProfileFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInputError(f"{path}, {place}: {first['msg']}; measure anew") from None


def write_atomically(path: Path, model: BaseModel) -> None:
    """Write a model as JSON so that whoever reads `path` sees all of it or what was there before.

    Raises `BadInputError` if that is not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, model.model_dump_json(indent=1) + "\n", durable=True)
    except OSError as error:
        raise BadInputError(f"{path}: {cannot_write(error)}") from None


Kept = TypeVar("Kept", bound=BaseModel)


class LinkTimes(BaseModel):
    """What a link was measured to be, whatever its ends are called."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    latency_s: float
    bytes_per_s: float | None


class ProfileCache:
    """The cache in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def node(self, model_digest: str, identity: NodeIdentity) -> NodeTimes | None:
        """What is known of a model on a node."""
        return self._read(NodeTimes, "node", model_digest, identity.model_dump_json())

    def keep_node(self, model_digest: str, identity: NodeIdentity, times: NodeTimes) -> None:
        """Keep what was measured of a model on a node."""
        key = ("node", model_digest, identity.model_dump_json())
        write_atomically(self._path(*key), times)

    def link(self, one: NodeIdentity, other: NodeIdentity) -> LinkTimes | None:
        """What is known of the link between two nodes."""
        return self._read(LinkTimes, "link", one.model_dump_json(), other.model_dump_json())

    def keep_link(self, one: NodeIdentity, other: NodeIdentity, times: LinkTimes) -> None:
        """Keep what the link between two nodes was measured to be."""
        key = ("link", one.model_dump_json(), other.model_dump_json())
        write_atomically(self._path(*key), times)

    def _read(self, kind: type[Kept], *key: str) -> Kept | None:
        try:
            return kind.model_validate_json(read_small(self._path(*key)))
        except (OSError, ValidationError):
            return None

    def _path(self, *key: str) -> Path:
        digest = hashlib.sha256("\n".join((str(FORMAT), *key)).encode()).hexdigest()
        return self._folder / f"{digest}.json"


def default_cache() -> ProfileCache:
    """The user's."""
    base = os.environ.get("XDG_CACHE_HOME")
    return ProfileCache((Path(base) if base else Path.home() / ".cache") / "csdf-edge-profiles")
