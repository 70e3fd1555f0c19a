"""Views as JSON, as the server's `GET /csdf-edge/v1/view` answers: `{"runs": [VIEW, …]}`.

The keys are those of `RunView`. A reader ignores keys that it does not know, so that a server may
be newer than its clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from launcher.errors import RunFailedError, shortened
from launcher.view.model import RunView

VIEW_PATH = "/csdf-edge/v1/view"
"""Where a server has the views of its runs, on its HTTP port."""


@dataclass(frozen=True, slots=True)
class _Answer:
    runs: tuple[RunView, ...]


_ANSWER = TypeAdapter(_Answer)


def views_as_json(views: Sequence[RunView]) -> bytes:
    """Return the JSON of these views, in UTF-8."""
    return _ANSWER.dump_json(_Answer(tuple(views)))


def views_from_json(data: bytes) -> tuple[RunView, ...]:
    """Return the views of this JSON. Raises `RunFailedError` if it is none of views."""
    try:
        return _ANSWER.validate_json(data).runs
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise RunFailedError(f"{shortened(place)}: {shortened(first['msg'])}") from None
