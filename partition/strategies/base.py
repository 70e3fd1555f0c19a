"""The interface of strategies, from a problem to rewrites and a device for every layer.

A strategy decides nothing else. Phases, channels, capacities, proofs and predictions follow from
its assignment in the same way for every strategy (`partition.planner.make_plan`). `apply_rewrites`
derives the problem of a rewritten network, with the same devices and with the measured seconds of
each layer divided among its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cnn.errors import ModelError
from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Channels, Rewrite
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.objective import DEFAULT_OBJECTIVE, WITHIN, Objective
from partition.pricing.cost import CostModel
from partition.pricing.layer_power import LayerWatts
from partition.pricing.linear_models import LinearTime
from partition.pricing.memory_budget import START_UP_BYTES
from partition.pricing.traffic import SLACK_FRAMES
from partition.wire import RAW, WirePolicy, shortest_bytes

if TYPE_CHECKING:
    from cnn.rewrite.bands import FusedLayers
    from partition.measured.profiles import Profile
    from partition.prediction.foreseen import RunFacts


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search: `done` of `total` steps, and its best result in a few words."""

    done: int
    total: int
    best: str


OnProgress = Callable[[SearchProgress], None]


def ignore_progress(_: SearchProgress) -> None:
    """Ignore the progress of a search."""


class Rewritable(Protocol):
    """The part of `cnn.model.Model` that rewriting strategies use."""

    @property
    def network(self) -> Network:
        """The network."""
        ...

    @property
    def digest(self) -> str:
        """The digest of the file that the model came from."""
        ...

    def rewritten(self, rewrites: Sequence[Rewrite]) -> Rewritable:
        """Return the model after `rewrites`, in order; raises `ModelError` if one is impossible."""
        ...

    def slice_channels(self) -> Mapping[str, Channels]:
        """Layer → its output channels, for all layers that can be computed in `Slices`."""
        ...

    def band_layers(self) -> tuple[str, ...]:
        """The layers that can be computed in `Bands` of rows, in topological order."""
        ...

    def fused(self, layers: Sequence[str]) -> FusedLayers:
        """Return what bands of these layers would compute, halo included, without rewriting them.

        Raises `ModelError` if these layers cannot be computed in bands.
        """
        ...


@dataclass(frozen=True)
class Problem:
    """A network, devices in the user's order, and layers whose device the user has decided.

    All randomness of a strategy comes from `seed`: the same problem has the same solution. Channels
    between devices are to hold `slack_frames` frames beyond what their skews need (`make_plan`).
    For the objective `both`, the period may exceed the shortest by the share `within`; of the plans
    that divide the network, by this share without its part `within_margin`.
    `model` is what `network` came from, for strategies that rewrite it; `layer_s` [layers, devices]
    are measured seconds that replace estimates; `copies` are measured seconds of frames on a device
    (by its name) that computes the whole network. `wire` says how tensors between devices may be
    encoded. `layer_w` are measured watts of layers. `profile` has the times of phases that were
    measured as they are, and `run` says how plans will be run; both count in foreseen plans
    (`partition.planner.foreseen_plan`).
    Construction raises `PartitionError` for a network without layers, for no devices, for two of
    one name, for one whose memory does not hold an engine, and for a pin that names an unknown
    layer or device.

    >>> from cnn.network import Layer, Tensor
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xyz"}
    >>> layers = (
    ...     Layer("l0", "Relu", ("x",), ("y",), (), 0),
    ...     Layer("l1", "Relu", ("y",), ("z",), (), 0),
    ... )
    >>> network = Network("net", layers, tensors, {}, ("x",), ("z",))
    >>> problem = Problem(network, (Device("a"), Device("b")), pins={"l1": "b"})
    >>> problem.pinned
    array([-1,  1])
    >>> problem.assignment(np.array([0, 1]))
    {'l0': 'a', 'l1': 'b'}
    """

    network: Network
    devices: tuple[Device, ...]
    pins: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    on_progress: OnProgress = field(default=ignore_progress, compare=False)
    slack_frames: int = SLACK_FRAMES
    objective: Objective = DEFAULT_OBJECTIVE
    within: float = WITHIN
    within_margin: float = 0.0
    model: Rewritable | None = field(default=None, compare=False)
    layer_s: NDArray[np.float64] | None = field(default=None, compare=False)
    copies: Mapping[str, LinearTime] = field(default_factory=dict, compare=False)
    wire: WirePolicy = RAW
    layer_w: LayerWatts = field(default_factory=dict, compare=False)
    profile: Profile | None = field(default=None, compare=False)
    run: RunFacts | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.network.layers:
            raise PartitionError(f"network {self.network.name!r} has no layer to assign")
        if not self.devices:
            raise PartitionError("there is no device; name at least one")
        names = [device.name for device in self.devices]
        for name in names:
            if names.count(name) > 1:
                raise PartitionError(f"two devices are called {name!r}; give each its own name")
        for each in self.devices:
            if each.memory_bytes is not None and each.memory_bytes < START_UP_BYTES:
                raise DoesNotFitError(
                    f"device {each.name!r} may hold {each.memory_bytes / 1e6:.1f} MB, and its "
                    f"engine alone needs {START_UP_BYTES / 1e6:.1f} MB while it starts; raise its "
                    "memory or leave it out"
                )
        for layer, device in self.pins.items():
            if layer not in self.network.layer:
                raise PartitionError(
                    f"layer {layer!r} is pinned to device {device!r}, but network "
                    f"{self.network.name!r} has no such layer; correct its name or remove the pin"
                )
            if device not in names:
                raise PartitionError(
                    f"layer {layer!r} is pinned to device {device!r}, which is not among the "
                    f"devices {', '.join(names)}; correct its name or remove the pin"
                )

    @cached_property
    def costs(self) -> CostModel:
        """The cost model of this network on these devices."""
        return CostModel(
            self.network,
            self.devices,
            self.layer_s,
            self.slack_frames,
            wire_bytes=self.wire_bytes,
            layer_w=self.layer_w,
        )

    @cached_property
    def wire_bytes(self) -> Mapping[str, int]:
        """The expected bytes between devices of each tensor that is encoded there, if no device
        specifies its own encoding; tensors that the planner may encode count as if it did.
        """
        return shortest_bytes(self.wire, self.network)

    @cached_property
    def pinned(self) -> NDArray[np.intp]:
        """The device number of each layer's pin, or −1 for a free layer: shape [layers]."""
        numbers = {device.name: number for number, device in enumerate(self.devices)}
        return np.array(
            [numbers.get(self.pins.get(layer.name, ""), -1) for layer in self.network.layers],
            dtype=np.intp,
        )

    @property
    def has_choice(self) -> bool:
        """Whether a layer can be on several devices."""
        return len(self.devices) > 1 and bool((self.pinned < 0).any())

    def assignment(self, numbers: NDArray[np.integer]) -> dict[str, str]:
        """Return layer → device for one row of device numbers, shape [layers]."""
        return {
            layer.name: self.devices[number].name
            for layer, number in zip(self.network.layers, numbers, strict=True)
        }

    def numbers(self, assignment: Mapping[str, str]) -> NDArray[np.intp]:
        """Return the device numbers [layers] of an assignment: the inverse of `assignment`."""
        numbers = {device.name: number for number, device in enumerate(self.devices)}
        return np.array(
            [numbers[assignment[layer.name]] for layer in self.network.layers], dtype=np.intp
        )


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignment on a Pareto front: no other is better in all three of period (s), memory (bytes
    of the fullest device, as the strategy counts them) and bytes sent per frame.

    The assignment is of the layers of the network that `rewrites` make of the problem's."""

    assignment: Mapping[str, str]
    period_s: float
    memory_bytes: float
    wire_bytes: float
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Solution:
    """A device for every layer, and a sentence for people on how it was chosen.

    `network` is what `rewrites` make of the problem's network, None if there are none; the
    assignment is of its layers. `optimal` and `gap`: see `partition.plan.Plan`. `front` is what
    the strategy found to choose from, if it keeps that; `others` is what it compared this with, the
    best first; `generations` is the logbook of a genetic algorithm, a record per generation.
    `strategy` names the strategy that found it, where another one has tried several.

    >>> Solution({"l0": "a"}, "there is one device").optimal is None
    True
    """

    assignment: Mapping[str, str]
    explanation: str
    rewrites: tuple[Rewrite, ...] = ()
    network: Network | None = None
    optimal: bool | None = None
    gap: float | None = None
    front: tuple[Candidate, ...] = field(default=(), compare=False)
    generations: tuple[Mapping[str, float], ...] = field(default=(), compare=False)
    others: tuple[Solution, ...] = field(default=(), compare=False)
    strategy: str = field(default="", compare=False)


def refuse_state(problem: Problem, strategy: str) -> None:
    """Raise `PartitionError` if the network keeps state, which `strategy` cannot copy."""
    if problem.network.state:
        kept = ", ".join(repr(tensor) for tensor in problem.network.state)
        raise PartitionError(
            f"strategy {strategy!r} deals frames out to copies of the network, and network "
            f"{problem.network.name!r} keeps state ({kept}) that each frame needs from the one "
            "before; choose another strategy"
        )


class Strategy(Protocol):
    """A method of dividing a network. It is stateless: the problem contains all that it needs."""

    @property
    def name(self) -> str:
        """The name that users write in `cluster.yaml`."""
        ...

    def solve(self, problem: Problem) -> Solution:
        """Assign every layer; respect pins, and memory limits if the strategy can.

        `make_plan` decides whether the result fits, and refuses one that does not. Raises
        `PartitionError` if the pins contradict the strategy.
        """
        ...


def required_model(problem: Problem, strategy: str) -> Rewritable:
    """Return the problem's model for a rewriting strategy; raises `PartitionError` if it has
    none."""
    if problem.model is None:
        raise PartitionError(
            f"strategy {strategy!r} rewrites the network and needs the model it came from; "
            "give the problem its model"
        )
    return problem.model


def without_choice(problem: Problem) -> Solution:
    """Return the only solution of a problem in which no layer has a choice of device."""
    problem.on_progress(SearchProgress(1, 1, "nothing to choose"))
    assignment = problem.assignment(np.maximum(problem.pinned, 0))
    return Solution(assignment, "no layer has a choice of device")


def part_of_search(problem: Problem, number: int, count: int, name: str = "") -> Problem:
    """Return a problem whose search reports its progress as that of part `number`, from 0, of
    `count` parts; what it reports begins with the `name` of the part if there is one."""

    def show(search: SearchProgress) -> None:
        part = min(PART_STEPS * search.done // max(1, search.total), PART_STEPS)
        done = min(number * PART_STEPS + part, count * PART_STEPS - 1)
        best = f"{name}: {search.best}" if name else search.best
        problem.on_progress(SearchProgress(done, count * PART_STEPS, best))

    return replace(problem, on_progress=show)


PART_STEPS = 1000
"""The number of steps of progress that a part of a search reports."""


def apply_rewrites(problem: Problem, model: Rewritable, rewrites: Sequence[Rewrite]) -> Problem:
    """Return `problem` for the network that results from applying `rewrites` to `model`.

    Pins stay with the layers that remain. Measured seconds of a layer are divided among its parts
    by their work. Raises `PartitionError` for a rewrite that is impossible.
    """
    try:
        rewritten = model.rewritten(rewrites)
    except ModelError as error:
        raise PartitionError(str(error)) from error
    network = rewritten.network
    return replace(
        problem,
        network=network,
        model=rewritten,
        pins={layer: device for layer, device in problem.pins.items() if layer in network.layer},
        layer_s=None
        if problem.layer_s is None
        else divided_seconds(problem.network, problem.layer_s, network),
    )


def divided_seconds(
    network: Network, layer_s: NDArray[np.float64], rewritten: Network
) -> NDArray[np.float64]:
    """Divide the seconds of the layers of `network` among those of `rewritten` by their work.

    Argument and result are [layers, devices]. Work is multiply-accumulates or, for a layer without
    any, the elements that it produces. Layers that a rewrite adds (to join tensors or to cut out
    rows) are taken to cost nothing.
    """
    shares = np.array([_share(network, rewritten, layer) for layer in rewritten.layers])
    origins = [network.place[layer.part_of or layer.name] for layer in rewritten.layers]
    return np.asarray(layer_s[origins] * shares[:, None])


def _share(network: Network, rewritten: Network, layer: Layer) -> float:
    whole = network.layer[layer.part_of or layer.name]
    if layer.operator != whole.operator:
        return 0.0
    if whole.macs:
        return layer.macs / whole.macs
    made = sum(rewritten.tensors[name].elements for name in layer.outputs)
    return made / max(1, sum(network.tensors[name].elements for name in whole.outputs))
