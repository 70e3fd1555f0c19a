"""Chooses the encoding of each channel of a plan, where the user leaves that to the planner.

The choice is greedy. As long as a link is what the period waits for, of the channels that load it
in its busier direction the one that gains most bytes is encoded. The encoding of a channel may
change later, to a shorter one. Encodings that change results more are tried only once the others
have not sufficed, so a fast link causes no deviation at all, and a slow one no more than it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cnn.network import Network
from csdf.conversion.from_network import HOST
from partition.devices import Device
from partition.plan import PlannedChannel, PlannedPhase
from partition.prediction.timing import Load, loads
from partition.pricing.busy import rates_of
from partition.wire import Encoding, WirePolicy, encoded_bytes, encoding_of, is_encodable


def encoded_channels(
    wire: WirePolicy,
    network: Network,
    devices: Sequence[Device],
    phases: Sequence[PlannedPhase],
    channels: Sequence[PlannedChannel],
    dealing: Sequence[int] = (0,),
) -> tuple[PlannedChannel, ...]:
    """Return the channels, in the same order, with the encodings that the user wants.

    Channels stay raw that lead to or come from the launcher, that stay on a device, or whose
    tensors are not of float32 or would not get shorter.
    """
    if wire.words == {"fp32"}:
        return tuple(channels)
    chosen = [
        _encoded(channel, encoding_of(wire.between(*_ends(channel))), network)
        for channel in channels
    ]
    free = [
        number
        for number, channel in enumerate(channels)
        if _can_be_encoded(channel) and wire.between(*_ends(channel)) == "auto"
    ]
    if free:
        search = _Search(network, devices, phases, chosen, dealing)
        for most in range(1, len(wire.allowed) + 1):
            while search.relieve(free, wire.allowed[:most]):
                pass
    return tuple(chosen)


def _ends(channel: PlannedChannel) -> tuple[str, str]:
    return channel.source_device, channel.target_device


def _can_be_encoded(channel: PlannedChannel) -> bool:
    is_between_devices = not channel.is_local and HOST not in _ends(channel)
    return is_between_devices and is_encodable(channel.tensor)


def _encoded(channel: PlannedChannel, encoding: Encoding, network: Network) -> PlannedChannel:
    """Return the channel with this encoding if that is possible and makes it shorter."""
    if not _can_be_encoded(channel):
        return channel
    made_by = network.producer.get(channel.tensor.name)
    operator = "" if made_by is None else network.layer[made_by].operator
    size = encoded_bytes(encoding, channel.tensor, operator)
    if size >= channel.tensor.bytes:
        return replace(channel, encoding="raw", encoded_bytes=0)
    return replace(channel, encoding=encoding, encoded_bytes=size)


class _Search:
    """Encodes one channel after another of the list `channels`, which it changes."""

    def __init__(
        self,
        network: Network,
        devices: Sequence[Device],
        phases: Sequence[PlannedPhase],
        channels: list[PlannedChannel],
        dealing: Sequence[int],
    ) -> None:
        self._network = network
        self._devices = {device.name: device for device in devices}
        self._phases = phases
        self._channels = channels
        self._dealing = dealing

    def relieve(self, free: Sequence[int], allowed: Sequence[Encoding]) -> bool:
        """Encode the channel that relieves the slowest link most; return False if none does."""
        load = self._loads(self._channels)
        links = {name: self._link_s(name, load) for name in load}
        slowest = max(links, key=links.__getitem__)
        if links[slowest] <= max(each.busy_s for each in load.values()):
            return False
        outwards = load[slowest].link_sent_bytes >= load[slowest].link_received_bytes
        offers = []
        for number in free:
            channel = self._channels[number]
            if _ends(channel)[0 if outwards else 1] == slowest and self._is_on_link(channel):
                for encoding in allowed:
                    changed = _encoded(channel, encoding, self._network)
                    if changed.wire_bytes < channel.wire_bytes:
                        offers.append((channel.wire_bytes - changed.wire_bytes, number, changed))
        for _, number, changed in sorted(offers, key=lambda offer: (-offer[0], offer[1])):
            tried = [*self._channels[:number], changed, *self._channels[number + 1 :]]
            then = self._loads(tried)
            if max(then[end].busy_s for end in _ends(changed)) < links[slowest]:
                self._channels[number] = changed
                return True
        return False

    def _loads(self, channels: Sequence[PlannedChannel]) -> dict[str, Load]:
        return loads(tuple(self._devices.values()), self._phases, channels, self._dealing)

    def _link_s(self, name: str, load: dict[str, Load]) -> float:
        own = load[name]
        rates = rates_of(self._devices[name])
        return rates.link_s(own.link_sent_bytes, own.link_received_bytes)

    def _is_on_link(self, channel: PlannedChannel) -> bool:
        one, other = (self._devices[end].host for end in _ends(channel))
        return one is None or one != other
