"""Reads, writes and checks profile files (readable JSON), and keeps measurements in a cache.

A profile is valid for one model (by digest) and for the nodes that were measured: their names,
machines, engines and threads. For others it is refused.

The cache lies under `$XDG_CACHE_HOME/csdf-edge-profiles`. Profiling and rehearsals of runs keep
what they measure of a node in one entry, in which the later of two times of the same subnet counts.
The entry is found by a digest of the model and of the node's identity. A file that is damaged or
has another format counts as missing.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from launcher.errors import BadInputError
from launcher.files import (
    PROFILES,
    cannot_write,
    read_json,
    read_small,
    user_cache,
    write_whole,
)
from launcher.plan.profile.choice import MeasuredPlans
from nodes.protocol.messages import EngineChoice
from partition.measured.profiles import (
    CHANGED,
    LEAST_S,
    BatchTimes,
    LinkProfile,
    NodeProfile,
    Profile,
    SubnetTime,
)

FORMAT = 3
"""The version of profile files; increased when an old version could misread a new file. Files of
format 1, which have no compared engines, and of format 2, which have no batches, are read as
well."""

CACHE_FORMAT = 1
"""The version of files in the cache; increased when an old file could be misread."""

MOST = 1e12
"""The most seconds, and the most watts, that are believed: sums of them stay finite."""

Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MOST)]
Watts: TypeAlias = Annotated[float, Field(ge=0, le=MOST)]
LinkRate: TypeAlias = Annotated[float, Field(ge=1, le=MOST)]
"""Bytes per second; a slower link carries no tensors."""


class _FileModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DeclaredIdentity(_FileModel):
    """The part of a node's identity that `cluster.yaml` has; no agent has to be contacted for it.

    The host of an agent that the launcher starts is the launching machine's name. `asked` is what
    `cluster.yaml` asks of its engine; empty if it asks for nothing.
    """

    host: str
    threads: Annotated[int, Field(ge=1, le=1024)]
    cpus: tuple[int, ...]
    asked: str = ""


class NodeIdentity(DeclaredIdentity):
    """The properties on which a node's times depend; its agent reports what `cluster.yaml` does not
    have.

    `agent` is the address of its agent if `cluster.yaml` does not name the node's host: an address
    may be the end of a tunnel, and each agent of a machine may have another quota. It is empty for
    nodes whose host the user names, and for agents that the launcher starts. These share their
    measurements with their equals on that host.
    """

    machine: str
    cores: int
    engine: str
    version: str
    agent: str = ""

    def difference(self, known: DeclaredIdentity) -> str | None:
        """Return the first field that differs in `known`, as `machine 'A', not 'B'`, or None."""
        for key in [key for key in type(known).model_fields if key != "agent"]:
            mine, its = getattr(self, key), getattr(known, key)
            if mine != its:
                return f"{key} {mine!r}, not {its!r}"
        return None


class SubnetEntry(_FileModel):
    """See `partition.measured.profiles.SubnetTime`."""

    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    rewrites: str = ""
    seconds: Annotated[float, Field(gt=0, le=MOST)]


class BatchEntry(_FileModel):
    """See `partition.measured.profiles.BatchTimes`."""

    frames: Annotated[int, Field(ge=2)]
    layer_s: dict[str, Seconds]
    subnets: tuple[SubnetEntry, ...] = ()


class NodeTimes(_FileModel):
    """See `partition.measured.profiles.NodeProfile`."""

    layer_s: dict[str, Seconds]
    subnets: tuple[SubnetEntry, ...] = ()
    message_s: Seconds = 0.0
    byte_s: Seconds = 0.0
    busy_w: Watts | None = None
    idle_w: Watts | None = None
    batches: tuple[tuple[Annotated[int, Field(ge=1)], Seconds], ...] = ()
    batched: tuple[BatchEntry, ...] | None = None
    layer_w: dict[str, Watts] | None = None
    mac_s: Seconds | None = None
    """The time of a multiply-accumulate by the node's board figures (None: unknown)."""

    @classmethod
    def of(cls, node: NodeProfile, mac_s: float | None = None) -> NodeTimes:
        """Convert the measurements of a node to data."""
        return cls(
            mac_s=mac_s,
            layer_s=dict(node.layer_s),
            subnets=_entries(node.subnets),
            message_s=node.message_s,
            byte_s=node.byte_s,
            busy_w=node.busy_w,
            idle_w=node.idle_w,
            batches=node.batches,
            batched=None
            if node.batched is None
            else tuple(
                BatchEntry(
                    frames=each.frames,
                    layer_s=dict(each.layer_s),
                    subnets=_entries(each.subnets),
                )
                for each in node.batched
            ),
            layer_w=None if node.layer_w is None else dict(node.layer_w),
        )

    def hold(self, mac_s: float | None) -> bool:
        """Return whether a board with this figure is about as fast as when it was measured: another
        quota or power mode changes all times."""
        if not self.mac_s or not mac_s:
            return True
        return 1 / CHANGED <= mac_s / self.mac_s <= CHANGED

    def are_of(self, layers: Collection[str]) -> bool:
        """Return whether a network with these layers may have been measured."""
        measured = (self.subnets, *(each.subnets for each in self.batched or ()))
        named = {name for own in measured for s in own if not s.rewrites for name in s.layers}
        return named <= set(layers) and (not self.layer_s or set(layers) <= self.layer_s.keys())

    def profile(self) -> NodeProfile:
        """Return the measurements as the cost model reads them."""
        return NodeProfile(
            self.layer_s,
            _subnets(self.subnets),
            self.message_s,
            self.byte_s,
            self.busy_w,
            self.idle_w,
            self.batches,
            None
            if self.batched is None
            else tuple(
                BatchTimes(each.frames, each.layer_s, _subnets(each.subnets))
                for each in self.batched
            ),
            self.layer_w,
        )


def _entries(subnets: Sequence[SubnetTime]) -> tuple[SubnetEntry, ...]:
    return tuple(
        SubnetEntry(
            layers=subnet.layers,
            inputs=subnet.inputs,
            outputs=subnet.outputs,
            rewrites=subnet.rewrites,
            seconds=subnet.seconds,
        )
        for subnet in subnets
    )


def _subnets(entries: Sequence[SubnetEntry]) -> tuple[SubnetTime, ...]:
    return tuple(SubnetTime(s.layers, s.inputs, s.outputs, s.rewrites, s.seconds) for s in entries)


class ComparedEngines(_FileModel):
    """The engines that were compared on a node, because `cluster.yaml` leaves its engine open.

    `seconds` are those of a frame of the network's `layers`, by engine in the order in which the
    agent prefers them; `left_out` has the engines that failed, and why. `chosen` is empty if all
    did.
    """

    chosen: str
    seconds: dict[str, Seconds]
    left_out: dict[str, str] = {}
    layers: int

    @model_validator(mode="after")
    def _has_compared_what_it_chose(self) -> ComparedEngines:
        if self.chosen and self.chosen not in self.seconds:
            raise ValueError(f"{self.chosen!r} is chosen but has no seconds")
        return self

    def __str__(self) -> str:
        """Return what was chosen and why, and what was left out."""
        text = f"{self.chosen}, {self.reason}" if self.chosen else "none computes this network"
        return text + "".join(f"; {name} left out: {why}" for name, why in self.left_out.items())

    @property
    def reason(self) -> str:
        """Return why `chosen` is the node's engine, as a clause."""
        own = self.seconds[self.chosen]
        others = sorted((s, name) for name, s in self.seconds.items() if name != self.chosen)
        if not others:
            return "measured: no other engine computes this network"
        factors = (f"{s / max(own, LEAST_S):.2f} times as fast as {name}" for s, name in others)
        return f"measured: {', '.join(factors)}"


class NodeEntry(_FileModel):
    """A node's identity and measurements, and how its engine was chosen if it was `auto`."""

    identity: NodeIdentity
    measured: NodeTimes
    engines: ComparedEngines | None = None


class LinkEntry(_FileModel):
    """See `partition.measured.profiles.LinkProfile`."""

    ends: tuple[str, str]
    latency_s: Seconds
    bytes_per_s: LinkRate | None


class ProfileFile(_FileModel):
    """A whole profile; `energy` names the source of its watts, `choice` has the best plans."""

    format: Literal[1, 2, 3] = 3
    model: str
    model_digest: str
    energy: str
    nodes: dict[str, NodeEntry]
    links: tuple[LinkEntry, ...] = ()
    choice: MeasuredPlans | None = None

    def profile(self) -> Profile:
        """Return the measurements as the cost model reads them."""
        links = tuple(LinkProfile(x.ends, x.latency_s, x.bytes_per_s) for x in self.links)
        return Profile({name: e.measured.profile() for name, e in self.nodes.items()}, links)

    def chosen_engines(self) -> dict[str, str]:
        """Return by node the engines that were chosen by measurements."""
        return {name: entry.engines.chosen for name, entry in self.nodes.items() if entry.engines}

    def check(
        self, where: str, model: str, digest: str, nodes: Mapping[str, DeclaredIdentity]
    ) -> None:
        """Raise `BadInputError` if the profile is of another model or of other nodes.

        `nodes` are those that it is to be used for, with all that is known of them.
        """
        again = "measure again with csdf-edge partition profile"
        if digest != self.model_digest:
            what = f"is a profile of the model {self.model}, not of {model}"
            if model == self.model:
                what = f"was measured before the file of {model} was changed"
            raise BadInputError(f"{where}: {what}; {again}")
        for name, known in nodes.items():
            entry = self.nodes.get(name)
            if entry is None:
                raise BadInputError(
                    f"{where}: has no times of node {name!r}, only of {', '.join(self.nodes)}; "
                    f"{again}"
                )
            difference = entry.identity.difference(known)
            if difference is not None:
                raise BadInputError(
                    f"{where}: was measured on another node {name!r}: {difference}; {again}"
                )


def read_profile(path: Path) -> ProfileFile:
    """Read a profile file; raises `BadInputError`."""
    _, data = read_json(
        path, missing="there is no such profile; make it with csdf-edge partition profile"
    )
    if not isinstance(data, dict) or data.get("format") not in range(1, FORMAT + 1):
        raise BadInputError(
            f"{path}: is not a profile that this version reads (formats 1 to {FORMAT}); "
            "make it with csdf-edge partition profile"
        )
    try:
        return ProfileFile.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInputError(
            f"{path}, {place}: {first['msg']}; measure again with csdf-edge partition profile"
        ) from None


def write_atomically(path: Path, model: BaseModel) -> None:
    """Write a model as JSON; readers see the old file or all of the new one.

    Raises `BadInputError` if `path` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, model.model_dump_json(indent=1) + "\n", durable=True)
    except OSError as error:
        raise BadInputError(f"{path}: {cannot_write(error)}") from None


ALIKE = 1.25
"""The factor by which times may differ from those that a kept plan was found with."""

MOST_KEPT = 1000
"""The most entries of a cache; one has some tens of kilobytes."""

Kept = TypeVar("Kept", bound=BaseModel)


class LinkTimes(BaseModel):
    """The measured times of a link, without the names of its ends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    latency_s: Seconds
    bytes_per_s: LinkRate | None


class KeptPlan(BaseModel):
    """The plan that a search has found, and the times that it was found with.

    The plan is stored under the digest of the question that `choice` answers. `facts` are the times
    that the search used: seconds of all layers on each device, and seconds per byte of its wire.
    `as_planned` is false if the plan was slower in its run than planned: later runs search, and
    prefer it only to plans that promise less than what it had.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    choice: MeasuredPlans
    facts: dict[str, float]
    as_planned: bool = True

    def holds(self, facts: Mapping[str, float]) -> bool:
        """Return whether the present times `facts` are close to those of the search."""
        return self.facts.keys() == facts.keys() and all(
            abs(math.log(max(facts[name], LEAST_S) / max(was, LEAST_S))) <= math.log(ALIKE)
            for name, was in self.facts.items()
        )


class ProfileCache:
    """A cache of measurements, and of plans that were found with them, in one folder.

    It removes the entries that were written first if there are more than `MOST_KEPT`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def node(
        self, model_digest: str, identity: NodeIdentity, layers: Collection[str]
    ) -> NodeTimes | None:
        """Return the measurements of a model on a node, or None.

        `layers` are those of the model: another version may have read others from its file.
        """
        times = self._read(NodeTimes, "node", model_digest, identity.model_dump_json())
        return times if times is not None and times.are_of(layers) else None

    def keep_node(self, model_digest: str, identity: NodeIdentity, times: NodeTimes) -> None:
        """Store the measurements of a model on a node."""
        self._keep(times, "node", model_digest, identity.model_dump_json())

    def plan(self, question: str) -> KeptPlan | None:
        """Return the plan that a search has found for a question (`Planner.question`), or None."""
        return self._read(KeptPlan, "plan", question)

    def keep_plan(self, question: str, plan: KeptPlan) -> None:
        """Store the plan that a search has found."""
        self._keep(plan, "plan", question)

    def engines(
        self, model_digest: str, identity: NodeIdentity, choices: Sequence[EngineChoice]
    ) -> ComparedEngines | None:
        """Return how engines compare that compute a model on a node, or None."""
        return self._read(ComparedEngines, *_engines_key(model_digest, identity, choices))

    def keep_engines(
        self,
        model_digest: str,
        identity: NodeIdentity,
        choices: Sequence[EngineChoice],
        found: ComparedEngines,
    ) -> None:
        """Store how engines compare that compute a model on a node."""
        self._keep(found, *_engines_key(model_digest, identity, choices))

    def link(self, one: NodeIdentity, other: NodeIdentity) -> LinkTimes | None:
        """Return the times of the link between two nodes' machines, in either order, or None."""
        return self._read(LinkTimes, *_link_key(one, other))

    def keep_link(self, one: NodeIdentity, other: NodeIdentity, times: LinkTimes) -> None:
        """Store the measured times of the link between two nodes' machines."""
        self._keep(times, *_link_key(one, other))

    def _keep(self, entry: BaseModel, *key: str) -> None:
        path = self._path(*key)
        if os.path.lexists(path) and not os.path.isfile(path):  # opening a pipe would block
            raise BadInputError(f"{path}: is not a file; remove it")
        write_atomically(path, entry)
        entries = list(self._folder.glob("*.json"))
        if len(entries) > MOST_KEPT:
            for path in sorted(entries, key=_written_s)[: len(entries) - MOST_KEPT]:
                with suppress(OSError):  # another process has removed it, or it is not a file
                    path.unlink()

    def _read(self, kind: type[Kept], *key: str) -> Kept | None:
        try:
            return kind.model_validate_json(read_small(self._path(*key)))
        except (OSError, ValidationError):
            return None

    def _path(self, *key: str) -> Path:
        digest = hashlib.sha256("\n".join((str(CACHE_FORMAT), *key)).encode()).hexdigest()
        return self._folder / f"{digest}.json"


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process has removed it
        return 0.0


def _link_key(one: NodeIdentity, other: NodeIdentity) -> tuple[str, ...]:
    return ("link", *sorted(f"{each.host}\n{each.machine}" for each in (one, other)))


def _engines_key(
    model_digest: str, identity: NodeIdentity, choices: Sequence[EngineChoice]
) -> tuple[str, ...]:
    return ("engines", model_digest, identity.model_dump_json(), repr(choices))


def default_cache() -> ProfileCache:
    """Return the user's cache."""
    return ProfileCache(user_cache(PROFILES))
