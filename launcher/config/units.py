"""Parses quantities as people write them: sizes (`4GB`), link rates (`1Gbit/s`), speeds (`20G`),
shares (`10%`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from nodes.protocol.sizes import brief, parse_bytes

__all__ = [
    "Bytes",
    "LinkRate",
    "Share",
    "Speed",
    "brief",
    "parse_bytes",
    "parse_link",
    "parse_share",
    "parse_speed",
]

_DECIMAL = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LINK = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(bit|bps|b)\s*(?:/\s*s)?\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*")
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmgt]?)\s*", re.IGNORECASE)


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

    Raises `ValueError` with a message that continues the key's name. (YAML 1.1 reads `2e10` as
    text.)
    """
    if isinstance(value, str) and (match := _RATE.fullmatch(value)):
        speed = float(match[1]) * _DECIMAL[match[2].lower()]
    elif _is_number(value):
        speed = float(value)  # type: ignore[arg-type]
    else:
        raise ValueError(f"must be a number per second such as 2e10 or 20G, not {brief(value)}")
    if not 0 < speed < math.inf:
        raise ValueError(f"must be above zero, not {brief(value)}")
    return speed


def parse_share(value: object) -> float:
    """Return the share in [0, 1] of text such as `10%` or `0.1`, or of a number such as 0.1.

    Raises `ValueError` with a message that continues the key's name.
    """
    if isinstance(value, str) and (match := _SHARE.fullmatch(value)):
        share = float(match[1]) / (100 if match[2] else 1)
    elif _is_number(value):
        share = float(value)  # type: ignore[arg-type]
    else:
        raise ValueError(f"must be a share such as 10% or 0.1, not {brief(value)}")
    if not 0 <= share <= 1:
        raise ValueError(f"must be a share from 0 to 1, such as 10% or 0.1, not {brief(value)}")
    return share


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _parsed_by(parse: Callable[[object], float], written: object) -> BeforeValidator:
    """Let a value be written as `parse` reads it, of type `written` in the schema, or left out."""
    return BeforeValidator(
        lambda value: None if value is None else parse(value), json_schema_input_type=written
    )


Bytes = Annotated[int | None, _parsed_by(parse_bytes, int | str | None)]
Speed = Annotated[float | None, _parsed_by(parse_speed, float | str | None)]
Share = Annotated[float, BeforeValidator(parse_share, json_schema_input_type=float | str)]
LinkRate = Annotated[
    float | None,
    _parsed_by(parse_link, str | None),
    PlainSerializer(lambda rate: None if rate is None else f"{rate:f}B/s", when_used="json"),
]
