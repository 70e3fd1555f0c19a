"""Defines what the models of all sections of `cluster.yaml` have in common."""

from __future__ import annotations

import re
from typing import Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict


class StrictModel(BaseModel):
    """A frozen mapping that refuses unknown keys, infinite numbers, and values of another type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def matching(pattern: re.Pattern[str], otherwise: str) -> AfterValidator:
    """Accept a text that matches the whole pattern; `otherwise` continues the text in the error."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text!r} {otherwise}")
        return text

    return AfterValidator(check)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Names that nodes and networks may have."""


def name_of(what: str) -> AfterValidator:
    """Accept a name that nodes and networks may have; errors say `what` it names."""
    return matching(
        NAME,
        f"cannot be {what}: use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter "
        "or digit",
    )


def short_form(key: str, *types: type, schema: Any) -> BeforeValidator:
    """Let a plain value stand for a mapping with only `key`; `schema` is the type of all forms."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, types) else value

    return BeforeValidator(expand, json_schema_input_type=schema)
