"""Finds the engine, device and precision for a deployment among those that an agent offers.

The launcher decides with this before it deploys anything, and the agent before it loads anything.
The user leaves open what is `auto`. Of the offers, which come in the order of preference, the first
one that has everything else is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodes.protocol.errors import NodeError
from nodes.protocol.messages import DeviceOffer, EngineChoice, EngineOffer

AUTO = "auto"


class EngineLackingError(NodeError):
    """An agent lacks the engine, device, precision or option that a deployment asks for.

    The text is a clause that follows the node's name: what it lacks, and what to do. `key` is the
    part of the choice that it lacks, as in `cluster.yaml`.
    """

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


def resolve(choice: EngineChoice, offers: Sequence[EngineOffer]) -> EngineChoice:
    """Return `choice` with names in place of every `auto`.

    Raises `EngineLackingError` if no offer has what `choice` asks for.
    """
    usable = [offer for offer in offers if not offer.missing]
    if choice.engine != AUTO:
        usable = [_named(choice.engine, offers)]
    if not usable:
        raise EngineLackingError("engine", f"has no engine: {_all_missing(offers)}")
    all_ = [(offer, device) for offer in usable for device in offer.devices]
    wanted = canonical(choice.device)
    fitting = [each for each in all_ if wanted in (AUTO, each[1].device)]
    if not fitting:
        raise EngineLackingError("device", _no_device(wanted, usable, offers))
    precise = [each for each in fitting if choice.precision in (AUTO, *each[1].precisions)]
    if not precise:
        raise EngineLackingError("precision", _no_precision(choice.precision, fitting))
    names = [option.name for option in choice.options]
    knowing = [each for each in precise if set(names) <= set(each[0].options)]
    if not knowing:
        raise EngineLackingError("engine_options", _no_option(names, precise[0][0]))
    offer, device = knowing[0]
    precision = device.precisions[0] if choice.precision == AUTO else choice.precision
    return replace(choice, engine=offer.engine, device=device.device, precision=precision)


def canonical(device: str) -> str:
    """Return the name under which agents report a device: the first of its kind has no number.

    >>> canonical("gpu:0"), canonical("gpu:1")
    ('gpu', 'gpu:1')
    """
    return device.removesuffix(":0")


def described(offers: Iterable[EngineOffer]) -> list[str]:
    """Return a line for each engine: what it offers, or why it cannot be used."""
    return [
        f"{offer.engine}: {offer.missing}"
        if offer.missing
        else f"{offer.engine}: {_offered(offer)}"
        for offer in offers
    ]


def _offered(offer: EngineOffer) -> str:
    devices = "; ".join(f"{each.device} ({', '.join(each.precisions)})" for each in offer.devices)
    options = f"; engine_options {', '.join(offer.options)}" if offer.options else ""
    return (devices or "no device") + options


def _named(engine: str, offers: Sequence[EngineOffer]) -> EngineOffer:
    found = next((offer for offer in offers if offer.engine == engine), None)
    if found is None:
        known = [offer.engine for offer in offers]
        raise EngineLackingError(
            "engine",
            f"has no engine {engine!r}; its engines are "
            f"{', '.join(known) or 'none'}: install the package that provides it there, or start "
            "that agent with another --engine",
        )
    if found.missing:
        raise EngineLackingError("engine", f"cannot use the engine {engine}: {found.missing}")
    return found


def _all_missing(offers: Sequence[EngineOffer]) -> str:
    return "; ".join(f"{offer.engine}: {offer.missing}" for offer in offers) or "none is installed"


def _no_device(device: str, usable: Sequence[EngineOffer], offers: Sequence[EngineOffer]) -> str:
    known = dict.fromkeys(each.device for offer in usable for each in offer.devices)
    others = [offer for offer in offers if offer.missing]
    advice = f"; other engines may have it ({_all_missing(others)})" if len(usable) > 1 else ""
    return (
        f"has no device {device!r} for {_engines(usable)}, only {', '.join(known) or 'none'}: "
        "install the engine's package and driver for it there, and start that agent with "
        f"--device {device}{advice}"
    )


def _no_precision(precision: str, fitting: Sequence[tuple[EngineOffer, DeviceOffer]]) -> str:
    places = "; ".join(
        f"{offer.engine} on {device.device} has {', '.join(device.precisions)}"
        for offer, device in fitting
    )
    return f"does not compute in {precision}: {places}; choose one of these"


def _no_option(names: Sequence[str], offer: EngineOffer) -> str:
    unknown = next(name for name in names if name not in offer.options)
    known = ", ".join(offer.options) or "none"
    return f"has no engine option {unknown!r} for {offer.engine}; its options are {known}"


def _engines(offers: Iterable[EngineOffer]) -> str:
    return " or ".join(offer.engine for offer in offers)
