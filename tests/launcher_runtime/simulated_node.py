"""A simulated node: an agent's real core with a simulated disk and executor.

Tensors are integers. A phase computes each output from its name and the inputs by a function that
gives another value for any mixture of frames, so that a wrong result is noticed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nodes.core import actions as act
from nodes.core import events as nev
from nodes.core.agent import Agent
from nodes.protocol.messages import Deployment, Put
from partition.plan import Plan

FIRING_S = 0.01
_MODULUS = (1 << 61) - 1


def source_value(tensor: str, frame: int) -> int:
    """A network input of the run's frame `frame`."""
    return (frame * 1_000_003 + sum(map(ord, tensor))) % _MODULUS


def computed(tensor: str, inputs: Mapping[str, int]) -> int:
    """What a phase makes of its inputs."""
    value = 17
    for name in sorted(inputs):
        value = (value * 1_000_003 + inputs[name]) % _MODULUS
    return (value * 31 + sum(map(ord, tensor))) % _MODULUS


def whole(plan: Plan, frame: int, state: Mapping[str, int]) -> dict[str, int]:
    """All tensors of a frame, as the network computes them when nothing is in between. `state` has
    what its phases kept of the frame before, by the names by which they read it."""
    made = {c.tensor.name for c in plan.channels} - {t for p in plan.phases for t in p.outputs}
    values = {tensor: source_value(tensor, frame) for tensor in made}
    waiting = list(plan.phases)
    while waiting:
        phase = next(p for p in waiting if values.keys() >= set(p.inputs))
        waiting.remove(phase)
        inputs = {name: values[name] for name in phase.inputs}
        inputs |= {tensor.name: state[tensor.name] for tensor, _ in phase.state}
        values.update({tensor: computed(tensor, inputs) for tensor in phase.outputs})
    return values


@dataclass
class SimulatedNode:
    """See the module's docstring; `cached` tells which blobs it had before, `tick` its core that
    time has passed."""

    agent: Agent
    cached: Callable[[str], bool]
    tick: Callable[[], None]
    deadline_s: float | None = None
    """When its core wants a `Tick`."""
    told: list[str] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    deployment: Deployment | None = None
    ahead: Deployment | None = None
    """What is loaded beside it."""
    loading_ahead: Deployment | None = None
    firings: deque[act.Fire] = field(default_factory=deque)
    local: dict[tuple[str, int], int] = field(default_factory=dict)
    state: dict[str, int] = field(default_factory=dict)
    fired: Counter[int] = field(default_factory=Counter)
    """Firings of each epoch."""
    is_gone: bool = False
    is_paused: bool = False
    life: int = 0
    """Counts restarts, so that what was meant for an earlier life is known."""
    late: list[nev.Event] = field(default_factory=list)
    """What its executor did and nobody there has heard of, because it is paused."""

    @property
    def words(self) -> list[str]:
        """What it was told, pings left out."""
        return [word for word in self.told if word != "Ping"]

    def has(self, digest: str) -> bool:
        """Whether a blob is there."""
        return self.cached(digest)

    def write(self, put: Put) -> bool:
        """Whether the blob is complete with this chunk, which must be the next of it."""
        come = 0 if put.offset_bytes == 0 else self.stored.get(put.blob.digest, 0)
        assert come == put.offset_bytes
        self.stored[put.blob.digest] = put.offset_bytes + len(put.data)
        return self.stored[put.blob.digest] == put.blob.size_bytes

    def load(self, deployment: Deployment) -> None:
        """Nothing of an earlier deployment is left, nor of one that was to follow."""
        assert not self.firings
        self.close_ahead()
        self.deployment = deployment
        self.local.clear()
        self.state.clear()

    def load_ahead(self, deployment: Deployment) -> Callable[[], None]:
        """Begin to load a deployment ahead; call what is returned when it is loaded."""
        assert self.ahead is self.loading_ahead is None, "there is something that nobody has freed"
        self.loading_ahead = deployment

        def loaded() -> None:
            if self.loading_ahead is deployment:
                self.ahead, self.loading_ahead = deployment, None

        return loaded

    def close_ahead(self) -> None:
        """Free what is loaded ahead."""
        self.ahead = self.loading_ahead = None

    def end_firing(self, busy_s: float) -> nev.FiringEnded:
        """End the oldest firing, which took `busy_s`."""
        fire = self.firings.popleft()
        assert self.deployment is not None
        assert fire.epoch == self.deployment.epoch, "a firing of another epoch"
        self.fired[fire.epoch] += 1
        phase = self.deployment.phases[fire.phase]
        here = {**self.state, **fire.inputs}
        inputs = {
            tensor: here[tensor] if tensor in here else self.local[tensor, fire.frame]
            for tensor in phase.inputs
        }
        outputs = {tensor: computed(tensor, inputs) for tensor in phase.outputs}
        for channel in self.deployment.channels:
            if channel.kept_from in outputs:
                assert (fire.frame == 0) == (channel.tensor in fire.inputs)
                self.state[channel.tensor] = outputs[channel.kept_from]
        self.local.update({(tensor, fire.frame): value for tensor, value in outputs.items()})
        return nev.FiringEnded(
            fire.epoch, fire.phase, fire.frame, outputs, busy_s, undisturbed_s=busy_s
        )
