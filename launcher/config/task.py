"""The section `task` of `cluster.yaml`: what the network's outputs mean, and what is kept of them.

`launcher.tasks` decodes the outputs. What is left `auto` follows from the model's metadata and the
shapes of its outputs (`launcher.tasks.recognition`).
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator

from launcher.config.strict import StrictModel, short_form

TaskKind: TypeAlias = Literal[
    "auto", "classify", "detect", "segment", "pose", "obb", "semantic", "none"
]
"""What a network finds; ultralytics' words."""

HeadName: TypeAlias = Literal[
    "auto", "yolov5", "yolov8", "end-to-end", "rt-detr", "ssd", "torchvision", "tensorflow"
]
"""Forms in which networks give boxes (`launcher.tasks.heads`)."""

FINDS_PLACES = frozenset({"detect", "segment", "pose", "obb", "semantic"})
"""Tasks whose results are places in the image."""


class TaskConfig(StrictModel):
    """What the outputs mean, and which predictions are kept. `kind` may stand for the mapping."""

    kind: Annotated[
        TaskKind,
        Field(
            description="What the network finds: classes of the image (classify), boxes (detect), "
            "boxes with masks (segment), with key points (pose) or turned (obb), or classes of "
            "pixels (semantic); auto: as the model says; none: outputs are not decoded"
        ),
    ] = "auto"
    head: Annotated[
        HeadName, Field(description="Form of the outputs with boxes; auto: by their shapes")
    ] = "auto"
    confidence: Annotated[
        float, Field(ge=0, le=1, description="Lowest score of objects that are kept, from 0 to 1")
    ] = 0.25
    overlap: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="Largest overlap (intersection over union) of two boxes of a class that "
            "are both kept; by default 0.45, or 0.7 for models of ultralytics",
        ),
    ] = None
    most: Annotated[
        int, Field(ge=1, le=10_000, description="Maximum number of objects per image")
    ] = 300
    top: Annotated[
        int, Field(ge=1, le=1000, description="With classify: number of classes per image")
    ] = 5
    points: Annotated[
        tuple[int, int] | None,
        Field(
            description="With pose: number of key points of an object, and numbers per key point: "
            "2, or 3 with a score; by default as the model says, or [17, 3]"
        ),
    ] = None

    @field_validator("points")
    @classmethod
    def _check_points(cls, points: tuple[int, int] | None) -> tuple[int, int] | None:
        if points is not None and (points[0] < 1 or points[1] not in (2, 3)):
            raise ValueError(
                f"{list(points)} is impossible: write the number of key points of an object, and "
                "2 or 3 numbers per key point, such as [17, 3]"
            )
        return points


Task: TypeAlias = Annotated[TaskConfig, short_form("kind", str, schema=TaskKind | TaskConfig)]
"""The value of `task:`."""
