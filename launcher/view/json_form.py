"""The JSON form of views: what `GET /csdf-edge/v1/view` answers, and how it is read back."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError

from launcher.errors import BadInputError
from launcher.view.model import RunView

VIEW_PATH = "/csdf-edge/v1/view"
"""Where a server has the views of its runs, on its HTTP port."""

_VIEWS = TypeAdapter(tuple[RunView, ...])


def write_views(views: Sequence[RunView]) -> bytes:
    """Return a JSON list with an object for each view, whose keys are the fields' names."""
    return _VIEWS.dump_json(tuple(views))


def read_views(text: bytes | str) -> tuple[RunView, ...]:
    """Return the views that `write_views` has written; raises `BadInputError` for anything else."""
    try:
        return _VIEWS.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInputError(f"no view of a run: {where}: {first['msg']}") from error
