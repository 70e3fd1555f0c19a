"""What sources, sinks and tasks share: mappings with a kind, and keys that are paths."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from launcher.config.kinds import FileName, file_names
from launcher.config.run import StrictModel


class _Keys(StrictModel):
    plain: FileName
    described: Annotated[FileName, Field(description="d")]
    optional: Annotated[FileName | None, Field(description="d")] = None
    missing: FileName | None = None
    text: str = "t"


def test_a_key_that_may_be_a_path_is_one_whatever_its_type_says_besides() -> None:
    keys = _Keys(plain="a", described="b", optional="c")
    assert file_names(keys) == {"plain": "a", "described": "b", "optional": "c"}
