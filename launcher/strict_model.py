"""What every model of a file that users write has in common."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A frozen mapping of known keys, whose values are finite and are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
