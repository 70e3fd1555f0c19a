"""Gives the worker of an agent the executor that a deployment asks for.

An agent opens one executor when it starts, that of the engine and device of its command line. It
opens others when a deployment asks for them, and keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nodes.cache.room import Room
from nodes.core.engines import AUTO
from nodes.executors.base import Executor, StatesOpset
from nodes.executors.preparing.entries import PreparedFiles
from nodes.executors.registry import chosen, memory_on, offers, open_chosen
from nodes.protocol.messages import EngineChoice, EngineOffer


class Engines:
    """The engines that an agent offers, and the executors that it has opened.

    Where the agent's own device is the CPU, it offers no other: its process is then restricted to
    its own files, and drivers of other devices open theirs (`nodes.host.sandbox`).
    """

    def __init__(self, engine: str, device: str, cache: Path, room: Room | None = None) -> None:
        """Open the executor of `engine` on `device`, each of which may be `auto`.

        Call this before starting threads. Raises ExecutorError with the package to install.
        """
        notes = PreparedFiles(cache, room)
        found = offers(engine, notes)
        own = chosen(EngineChoice(engine, device, AUTO), found)
        self.device = own.device
        self.offers = tuple(
            replace(offer, memory=memory_on(offer, notes)) for offer in _preferring(own, found)
        )
        self._cache, self._room = cache, room
        self.executor = open_chosen(own, cache, room)
        """The executor for deployments that leave engine and device to the agent."""
        self.own = own
        """Its engine and device."""
        self.notes = notes
        """The store of findings about engines and this board."""
        if isinstance(self.executor, StatesOpset):
            first = replace(self.offers[0], opset=self.executor.newest_opset)
            self.offers = (first, *self.offers[1:])
        self._opened = {(own.engine, own.device): self.executor}

    def executor_for(self, choice: EngineChoice) -> tuple[Executor, EngineChoice]:
        """Return the executor for a choice, and the choice with names for all that was `auto`.

        Opens the executor if need be. Call it from one thread at a time. Raises ExecutorError if
        this agent does not offer what the choice asks for.
        """
        named = chosen(choice, self.offers)
        place = (named.engine, named.device)
        if place not in self._opened:
            self._opened[place] = open_chosen(named, self._cache, self._room)
        return self._opened[place], named

    def close(self) -> None:
        """Close all executors."""
        for executor in list(self._opened.values()):
            executor.close()


def _preferring(own: EngineChoice, found: Sequence[EngineOffer]) -> tuple[EngineOffer, ...]:
    """Return the offers with `own` first; if that is on the CPU, with no other device."""
    kept = []
    for offer in found:
        devices = [each for each in offer.devices if own.device != "cpu" or each.device == "cpu"]
        devices.sort(key=lambda each: each.device != own.device)
        missing = offer.missing
        if offer.devices and not devices:
            missing = (
                f"it has no cpu, only {offer.devices[0].device}: start that agent with "
                f"--engine {offer.engine}"
            )
        kept.append(replace(offer, missing=missing, devices=tuple(devices)))
    return tuple(sorted(kept, key=lambda offer: offer.engine != own.engine))
