"""Parses quantities as people write them: sizes (`4GB`), link rates (`1Gbit/s`), speeds (`20G`),
shares (`10%`), durations (`200ms`), numbers of frames (`8` or `auto`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from pydantic import BeforeValidator, PlainSerializer

from launcher.errors import BadInputError
from nodes.protocol.sizes import NUMBER, brief, parse_bytes

__all__ = [
    "AUTO_BATCH",
    "BatchSize",
    "Bytes",
    "Duration",
    "LinkRate",
    "Share",
    "Speed",
    "brief",
    "parse_batch",
    "parse_bytes",
    "parse_duration",
    "parse_link",
    "parse_share",
    "parse_speed",
    "parsed_option",
]

MOST_BATCH = 1024
"""The most frames that a node computes at once."""

Value = TypeVar("Value")

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_FLAGS = re.IGNORECASE | re.ASCII
_LINK = re.compile(rf"\s*{NUMBER}\s*([kmgt]?)(bit|bps|b)\s*(?:/\s*s)?\s*", _FLAGS)
_SHARE = re.compile(rf"\s*{NUMBER}\s*(%?)\s*", _FLAGS)
_DURATION = re.compile(rf"\s*{NUMBER}\s*(ms|s)\s*", _FLAGS)
_RATE = re.compile(rf"\s*{NUMBER}\s*([kmgt]?)\s*", _FLAGS)


def parse_link(value: object) -> float:
    """Return the bytes per second of text such as `1Gbit/s`, `100Mbps` (bits) or `12MB/s` (bytes).

    Raises `ValueError` with a message that continues the key's name.
    """
    match = _LINK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be a rate such as 1Gbit/s, 100Mbit/s or 12MB/s, not {brief(value)}")
    bits = 8 if match[3] == "B" else 1
    rate = float(match[1]) * _DECIMAL[match[2].lower()] * bits / 8
    if not 0 < rate < math.inf:
        raise ValueError(f"must be a rate above zero, not {brief(value)}")
    return rate


def parse_speed(value: object) -> float:
    """Return the operations per second of a number or of text such as `20G` or `2e10`.

    Raises `ValueError` with a message that continues the key's name.
    """
    number, prefix = _parts(value, _RATE, "a number per second such as 2e10 or 20G")
    speed = number * _DECIMAL[prefix]
    if not 0 < speed < math.inf:
        raise ValueError(f"must be above 0, not {brief(value)}")
    return speed


def parse_share(value: object) -> float:
    """Return the share in [0, 1] of text such as `10%` or `0.1`, or of a number such as 0.1.

    Raises `ValueError` with a message that continues the key's name.
    """
    number, percent = _parts(value, _SHARE, "a share such as 10% or 0.1")
    share = number / (100 if percent else 1)
    if not 0 <= share <= 1:
        raise ValueError(f"must be a share from 0 to 1, such as 10% or 0.1, not {brief(value)}")
    return share


def parse_duration(value: object) -> float:
    """Return the seconds of text such as `200ms` or `1.5s`, or of a number of seconds.

    Raises `ValueError` with a message that continues the key's name.
    """
    number, unit = _parts(value, _DURATION, "a duration such as 200ms or 0.2s")
    duration_s = number / (1000 if unit == "ms" else 1)
    if not 0 < duration_s < math.inf:
        raise ValueError(f"must be a duration above zero, not {brief(value)}")
    return duration_s


AUTO_BATCH: Final = "auto"
"""Leaves the number of frames in a batch to the cost model (`launcher.plan.batch_size`)."""


def parse_batch(value: object) -> int | Literal["auto"]:
    """Return a number of frames, or `auto`; text may stand for the number.

    Raises `ValueError` with a message that continues the key's name.
    """
    if value == AUTO_BATCH:
        return AUTO_BATCH
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= MOST_BATCH:
        return number
    raise ValueError(
        f"must be a number of frames from 1 to {MOST_BATCH}, or auto, not {brief(value)}"
    )


def _parts(value: object, pattern: re.Pattern[str], what: str) -> tuple[float, str]:
    """Return the number and the unit of a text, or a number and no unit; raises `ValueError`."""
    if isinstance(value, str) and (match := pattern.fullmatch(value)):
        return float(match[1]), match[2].lower()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    raise ValueError(f"must be {what}, not {brief(value)}")


def parsed_option(option: str, parse: Callable[[object], Value], text: str) -> Value:
    """Return what the text of a command's option stands for; raises `BadInputError`."""
    try:
        return parse(text)
    except ValueError as error:
        raise BadInputError(f"{option} {error}") from None


def _parsed_by(parse: Callable[[object], float], written: object) -> BeforeValidator:
    """Let a value be written as `parse` reads it, of type `written` in the schema, or left out."""
    return BeforeValidator(
        lambda value: None if value is None else parse(value), json_schema_input_type=written
    )


Bytes = Annotated[int | None, _parsed_by(parse_bytes, int | str | None)]
Duration = Annotated[float | None, _parsed_by(parse_duration, float | str | None)]
BatchSize: TypeAlias = Annotated[
    int | Literal["auto"],
    BeforeValidator(parse_batch, json_schema_input_type=int | Literal["auto"]),
]
Speed = Annotated[float | None, _parsed_by(parse_speed, float | str | None)]
Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]
LinkRate = Annotated[
    float | None,
    _parsed_by(parse_link, str | None),
    PlainSerializer(lambda rate: None if rate is None else f"{rate:f}B/s", when_used="json"),
]
