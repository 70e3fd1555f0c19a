"""Finds the engine, device and precision for a deployment among those that an agent offers.

The launcher decides with this before it deploys anything, and the agent before it loads anything.
The user leaves open what is `auto`. The first offer, in the order of preference, that has
everything else is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodes.protocol.errors import NodeError
from nodes.protocol.messages import (
    DeviceOffer,
    EngineChoice,
    EngineMemory,
    EngineOffer,
    OptionOffer,
)

AUTO = "auto"

BUILT_IN_MEMORY = {"openvino": EngineMemory(subnet_bytes=1_000_000, layer_bytes=75_000)}
"""Memory of built-in engines without tensors, where it differs from ONNX Runtime's (decision 045).
Launchers know it before agents have reported it.
"""


class EngineLackingError(NodeError):
    """An agent lacks the engine, device, precision or option that a deployment asks for, or cannot
    give the option its value.

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
    taking = [each for each in precise if _refused_option(choice, each[0]) is None]
    if not taking:
        raise EngineLackingError("engine_options", str(_refused_option(choice, precise[0][0])))
    offer, device = taking[0]
    precision = device.precisions[0] if choice.precision == AUTO else choice.precision
    return replace(choice, engine=offer.engine, device=device.device, precision=precision)


def refused_value(option: OptionOffer, value: str) -> str | None:
    """Return what the setting must be if it cannot be `value`, else None.

    >>> refused_value(OptionOffer("allow_spinning", words=("true", "false")), "perhaps")
    "must be true or false, not 'perhaps'"
    """
    if _has_value(option, value):
        return None
    return f"must be {_allowed(option)}, not {value!r}"


def _has_value(option: OptionOffer, value: str) -> bool:
    if option.words:
        return value in option.words
    if option.least is None and option.most is None:
        return True
    try:
        number = int(value) if option.is_whole else float(value)
    except ValueError:
        return False
    least = -math.inf if option.least is None else option.least
    most = math.inf if option.most is None else option.most
    return least <= number <= most and math.isfinite(number)


def _allowed(option: OptionOffer) -> str:
    if option.words:
        return " or ".join(filter(None, (", ".join(option.words[:-1]), option.words[-1])))
    kind = "a whole number" if option.is_whole else "a number"
    if option.most is None:
        return f"{kind} of at least {_number(option, option.least)}"
    if option.least is None:
        return f"{kind} of at most {_number(option, option.most)}"
    return f"{kind} from {_number(option, option.least)} to {_number(option, option.most)}"


def _number(option: OptionOffer, number: float | None) -> str:
    return str(int(number or 0)) if option.is_whole else f"{number:g}"


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
    names = ", ".join(option.name for option in offer.options)
    return (devices or "no device") + (f"; engine_options {names}" if names else "")


def _named(engine: str, offers: Sequence[EngineOffer]) -> EngineOffer:
    found = next((offer for offer in offers if offer.engine == engine), None)
    if found is None:
        known = [offer.engine for offer in offers]
        raise EngineLackingError(
            "engine",
            f"has no engine {engine!r}; its engines are "
            f"{', '.join(known) or 'none'}: install the package that provides it there, or start "
            f"that agent with --engine {engine}, which says what it lacks",
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


def _refused_option(choice: EngineChoice, offer: EngineOffer) -> str | None:
    """Return why the engine cannot have one of the choice's settings; None if it can have all."""
    known = {option.name: option for option in offer.options}
    for given in choice.options:
        if given.name not in known:
            return (
                f"has no engine option {given.name!r} for {offer.engine}; its options are "
                f"{', '.join(known) or 'none'}"
            )
        if (why := refused_value(known[given.name], given.value)) is not None:
            return (
                f"cannot use the value given: the engine option {given.name} of {offer.engine} "
                f"{why}"
            )
    return None


def _engines(offers: Iterable[EngineOffer]) -> str:
    return " or ".join(offer.engine for offer in offers)
