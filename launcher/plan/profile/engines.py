"""Chooses the engine of each node whose `engine` is `auto`, by measuring all that its agent offers.

Every engine that has what `cluster.yaml` asks of device, precision and settings computes a whole
copy of the network, or the largest piece of it that the node has room for. The engines take turns,
so that what disturbs a machine for a while disturbs all of them; an engine's time is the median
over its turns of what the agent's rehearsal measures (`nodes.execution.rehearsal`). An engine that
is far slower in its first turn gets no further ones, and one that fails is left out.

The order in which the agent prefers engines decides between equal ones. So another engine is
chosen only if it is faster by more than `EQUAL`, and repeated measurements agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cnn.model import Model
from launcher.errors import LauncherError
from launcher.plan.profile.bench import Bench, whole_copy
from launcher.plan.profile.file import ComparedEngines, NodeIdentity, ProfileCache
from launcher.run.runtime import Node
from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.messages import EngineChoice, EngineOffer
from partition.devices import Device
from partition.errors import DoesNotFitError
from partition.measured.layer_phases import as_one, pieces, useful_layers
from partition.plan import Plan

TURNS = 5

FAR_SLOWER = 1.5
"""An engine whose first turn took this many times as long as another's gets no further turns."""

EQUAL = 1.01
"""Engines whose times differ by at most this factor count as equal."""

FRAMES = 2


@dataclass
class EngineComparison:
    """Compares engines on the nodes of `bench`.

    After a failure, `renew` returns a bench whose agents have been restarted. Nodes of one kind
    (`launcher.plan.measuring.kinds`) share their measurements.
    """

    model: Model
    bench: Bench
    cache: ProfileCache
    again: bool
    renew: Callable[[], Bench]

    def perform(
        self,
        devices: Sequence[Device],
        kind: Mapping[str, NodeIdentity],
        offers: Mapping[str, Sequence[EngineOffer]],
    ) -> dict[str, ComparedEngines]:
        """Return the comparison for each of `devices` whose agent offers several engines.

        `kind` and `offers` are by node.
        """
        known: dict[tuple[NodeIdentity, tuple[EngineChoice, ...]], ComparedEngines] = {}
        found = {}
        for device in devices:
            node = next(node for node in self.bench.nodes if node.name == device.name)
            choices = usable(node.engine, offers[device.name])
            if len(choices) < 2:
                continue
            key = kind[device.name], choices
            if key not in known:
                cached = None if self.again else self.cache.engines(self.model.digest, *key)
                known[key] = cached or self._compare(node, device, choices)
                if cached is None and known[key].chosen:
                    self.cache.keep_engines(self.model.digest, *key, known[key])
            found[device.name] = known[key]
        return found

    def _compare(
        self, node: Node, device: Device, choices: Sequence[EngineChoice]
    ) -> ComparedEngines:
        plan = sample(self.model, device)
        turns: dict[str, list[float]] = {choice.engine: [] for choice in choices}
        left_out: dict[str, str] = {}
        for number in range(TURNS):
            for choice in choices:
                own = turns[choice.engine]
                fastest = min((each[0] for each in turns.values() if each), default=0.0)
                if choice.engine in left_out or (number and own[0] > FAR_SLOWER * fastest):
                    continue
                try:
                    own.append(self._turn(plan, replace(node, engine=choice)))
                except LauncherError as error:
                    left_out[choice.engine] = str(error)
                    self.bench.progress.say(
                        f"node {node.name}: {choice.engine} is left out: {error}"
                    )
                    self.bench = self.renew()
        return compared(
            {name: statistics.median(own) for name, own in turns.items() if name not in left_out},
            left_out,
            layers=len(plan.assignment),
        )

    def _turn(self, plan: Plan, node: Node) -> float:
        """Return the seconds of a frame, as measured in the rehearsal of a new deployment."""
        nodes = tuple(node if each.name == node.name else each for each in self.bench.nodes)
        stage = f"comparing engines on {node.name}: {node.engine.engine}"
        result = replace(self.bench, nodes=nodes).run(plan, self.model, FRAMES, stage)
        return sum(result.warmup_s[node.name])


def usable(asked: EngineChoice, offers: Sequence[EngineOffer]) -> tuple[EngineChoice, ...]:
    """Return the choices that `asked`, whose engine is open, allows; in the order of the offers."""
    found = []
    for offer in offers:
        with suppress(EngineLackingError):
            found.append(resolve(replace(asked, engine=offer.engine), offers))
    return tuple(found)


def sample(model: Model, device: Device) -> Plan:
    """Return a plan that engines compute to be compared: all of the network, or a piece."""
    try:
        return whole_copy(model, device)
    except DoesNotFitError:
        network = model.network
        useful, room = useful_layers(network), (device.memory_bytes or 0) // 2
        most = max(
            pieces(network, useful, room, len(useful)),
            key=lambda piece: sum(network.layer[name].macs for name in piece),
        )
        return as_one(network, model.digest, device, most)


def compared(
    seconds: Mapping[str, float], left_out: Mapping[str, str], *, layers: int
) -> ComparedEngines:
    """Choose among engines, by name in the order of preference, by their `seconds` for a frame."""
    best = min(seconds.values(), default=0.0)
    chosen = next((name for name, own in seconds.items() if own <= EQUAL * best), "")
    return ComparedEngines(
        chosen=chosen, seconds=dict(seconds), left_out=dict(left_out), layers=layers
    )
