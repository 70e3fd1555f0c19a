"""Chooses the decoder of a network: by `cluster.yaml`, else by the model itself.

Without the key `task` three signs count: metadata that name a task, a classifier's output, and
outputs of a form that only detectors have. Few forms prove that much: a row for each cell of YOLO's
grids, and the lists of torchvision's and TensorFlow's detectors. Other forms of boxes are
recognised only where a task that finds boxes is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from cnn.network import Tensor
from launcher.config.task import HeadName, TaskConfig, TaskKind
from launcher.errors import BadInputError, shortened
from launcher.tasks.classes import is_score_per_class
from launcher.tasks.decoders import ClassDecoder, Decoder, MapDecoder, ObjectDecoder
from launcher.tasks.heads import EndToEndHead, GridHead, Head, ListHead, PriorsHead
from launcher.tasks.metadata import ModelFacts

USUAL_OVERLAP, ULTRALYTICS_OVERLAP = 0.45, 0.7
"""The largest overlap of two objects that are kept: of the YOLO repositories, and of the package
ultralytics."""

USUAL_POINTS = (17, 3)
"""COCO's key points of a person."""

MOST_FINAL_ROWS = 1000
"""Up to this many rows [1, N, 6] are boxes that the network has chosen itself; YOLOv5 with one
class has the same rows, and at least 1575 of them from 160 × 160 pixels on.
"""

YOLO_STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
"""The pixels per cell of the grids of YOLO networks: usual ones, the large, fine and tiny ones."""

YOLOV5_ANCHORS = 3
"""Boxes of each cell in YOLOv5 and v7."""

RT_DETR = "RTDETRDecoder"
"""The metadata's name of RT-DETR's head."""


@dataclass(frozen=True, slots=True)
class Recognition:
    """The known facts of a network: its outputs, its input's width and height, and its facts."""

    outputs: tuple[Tensor, ...]
    size: tuple[int, int]
    facts: ModelFacts
    names: tuple[str, ...] = ()
    """The names of classes that are given to predictions; by the user's file if there is one."""

    def decoder(self, task: TaskConfig) -> Decoder | None:
        """Return the decoder for `task`, None for the kind `none`.

        Raises `BadInputError`, without a place, if the outputs are none of its forms.
        """
        kind = self.kind(task)
        if kind == "none":
            return None
        if kind == "classify":
            return ClassDecoder(self._classifying().name, task.top, self.names)
        if kind == "semantic":
            return self._map()
        points = None
        if kind == "pose":
            points = task.points or self.facts.points or USUAL_POINTS
        prototypes = self._prototypes() if kind == "segment" else None
        extras = 0
        if points is not None:
            extras = points[0] * points[1]
        elif prototypes is not None:
            extras = prototypes.shape[1]
        elif kind == "obb":
            extras = 1
        return ObjectDecoder(
            kind,
            self._head(task.head, kind, extras),
            self.size,
            task.confidence,
            self._overlap(task),
            task.most,
            self.names,
            points,
            prototypes.name if prototypes is not None else "",
        )

    def _overlap(self, task: TaskConfig) -> float:
        if task.overlap is not None:
            return task.overlap
        return ULTRALYTICS_OVERLAP if self.facts.is_ultralytics else USUAL_OVERLAP

    def kind(self, task: TaskConfig) -> TaskKind:
        """Return what the network finds; raises `BadInputError` if that is not known."""
        if task.kind != "auto":
            return task.kind
        stated = next((kind for kind in get_args(TaskKind) if kind == self.facts.task), None)
        if stated is not None and stated not in ("auto", "none"):
            known: TaskKind = stated
            return known
        if any(map(is_score_per_class, self.outputs)) and len(self.outputs) == 1:
            return "classify"
        if (form := self._kind_by_form()) is not None:
            return form
        raise BadInputError(
            f"the model does not say what its outputs mean ({self._shown}); write one of "
            f"{', '.join(kind for kind in get_args(TaskKind) if kind != 'auto')}"
        )

    def _kind_by_form(self) -> TaskKind | None:
        """Return what outputs of a form that only detectors have find; None for other forms."""
        if self._tensorflow(0) is not None or self._torchvision(0) is not None:
            return "detect"
        tensor = self._alone()
        if tensor is None:
            return None
        width, height = self.size
        cells = {
            sum((width // stride) * (height // stride) for stride in strides)
            for strides in YOLO_STRIDES
            if width % strides[-1] == height % strides[-1] == 0
        }
        _, first, last = tensor.shape
        masks = [one for one in self.outputs if _is_float(one) and len(one.shape) == 4]
        extras = masks[0].shape[1] if masks else 0
        if last in cells:
            classes = first - 4 - extras
        elif first % YOLOV5_ANCHORS == 0 and first // YOLOV5_ANCHORS in cells:
            classes = last - 5 - extras
        else:
            return None
        # 17 key points and one class have the form of 52 classes.
        is_pose = not extras and classes == 1 + USUAL_POINTS[0] * USUAL_POINTS[1]
        names = len(self.facts.names)
        if classes < 1 or (classes != names if names else is_pose):
            return None
        return "segment" if extras else "detect"

    @property
    def _shown(self) -> str:
        """The outputs' names, types and shapes, for messages."""
        return shortened(
            ", ".join(
                f"{tensor.name} {tensor.dtype} {list(tensor.shape)}" for tensor in self.outputs[:9]
            )
        )

    def _classifying(self) -> Tensor:
        for tensor in self.outputs:
            if is_score_per_class(tensor):
                return tensor
        raise BadInputError(f"classify needs an output with one score per class, not {self._shown}")

    def _map(self) -> MapDecoder:
        for tensor in self.outputs:
            found = _class_axis(tensor, self.size)
            if found is not None:
                return MapDecoder(tensor.name, found[0], self.size, self.names)
        raise BadInputError(
            "semantic needs an output [1, classes, height, width] with scores, or [1, height, "
            f"width] with numbers of classes, not {self._shown}"
        )

    def _prototypes(self) -> Tensor:
        for tensor in self.outputs:
            if _is_float(tensor) and len(tensor.shape) == 4 and tensor.shape[0] == 1:
                return tensor
        raise BadInputError(
            "segment needs an output [1, M, height, width] with masks' prototypes in addition to "
            f"the boxes, as in YOLO, not {self._shown}; for classes of pixels write semantic"
        )

    def _head(self, name: HeadName, kind: str, extras: int) -> Head:
        forms: dict[HeadName, Callable[[int], Head | None]] = {
            "rt-detr": self._rt_detr,
            "end-to-end": self._end_to_end,
            "yolov8": self._yolov8,
            "yolov5": self._yolov5,
            "tensorflow": self._tensorflow,
            "torchvision": self._torchvision,
            "ssd": self._ssd,
        }
        head = self._by_shapes(forms, extras) if name == "auto" else forms[name](extras)
        if isinstance(head, GridHead) and kind == "obb":
            head = replace(head, is_turned=True)
        if head is None:
            form = "any form known here" if name == "auto" else f"the form {name}"
            raise BadInputError(
                f"the outputs do not have {form} for {kind} ({self._shown}); write another kind, "
                f"or as head one of {', '.join(forms)}, or the kind none"
            )
        return head

    def _by_shapes(
        self, forms: dict[HeadName, Callable[[int], Head | None]], extras: int
    ) -> Head | None:
        for name, form in forms.items():
            if name == "rt-detr" and self.facts.head != RT_DETR:
                continue
            if extras and name in ("tensorflow", "torchvision", "ssd"):
                continue
            head = form(extras)
            if head is not None and self._is_likely(head):
                return head
        return None

    def _is_likely(self, head: Head) -> bool:
        """Whether the form that fits is also the likelier one of those that would."""
        if isinstance(head, EndToEndHead):
            return self._rows(head.output)[0] <= MOST_FINAL_ROWS
        if isinstance(head, GridHead) and head.overlaps:
            if self.facts.names:
                return head.classes == len(self.facts.names)
            first, last = self._rows(head.output)
            return first < last if head.rows_last else last < first
        return True

    def _rows(self, output: str) -> tuple[int, int]:
        shape = next(tensor.shape for tensor in self.outputs if tensor.name == output)
        return shape[1], shape[2]

    def _alone(self) -> Tensor | None:
        """Return the only output of the shape [1, a, b]; None if there is another number."""
        found = [
            tensor
            for tensor in self.outputs
            if _is_float(tensor) and len(tensor.shape) == 3 and tensor.shape[0] == 1
        ]
        return found[0] if len(found) == 1 else None

    def _yolov8(self, extras: int) -> Head | None:
        tensor = self._alone()
        classes = 0 if tensor is None else tensor.shape[1] - 4 - extras
        if tensor is None or classes < 1:
            return None
        return GridHead(tensor.name, classes, extras)

    def _yolov5(self, extras: int) -> Head | None:
        tensor = self._alone()
        classes = 0 if tensor is None else tensor.shape[2] - 5 - extras
        if tensor is None or classes < 1:
            return None
        return GridHead(tensor.name, classes, extras, rows_last=False, has_objectness=True)

    def _rt_detr(self, extras: int) -> Head | None:
        tensor = self._alone()
        if tensor is None or extras or tensor.shape[2] < 5:
            return None
        if tensor.shape[2] == 6:  # what ultralytics exports now
            return EndToEndHead(tensor.name, is_centred=True, unit=self.size)
        return GridHead(
            tensor.name, tensor.shape[2] - 4, rows_last=False, unit=self.size, overlaps=False
        )

    def _end_to_end(self, extras: int) -> Head | None:
        tensor = self._alone()
        if tensor is None or tensor.shape[2] != 6 + extras:
            return None
        return EndToEndHead(tensor.name, extras)

    def _boxes(self, ranks: tuple[int, ...]) -> list[Tensor]:
        return [
            tensor
            for tensor in self.outputs
            if _is_float(tensor) and len(tensor.shape) in ranks and tensor.shape[-1] == 4
            and (len(tensor.shape) == 2 or tensor.shape[0] == 1)
        ]  # fmt: skip

    def _torchvision(self, extras: int) -> Head | None:
        for boxes in () if extras else self._boxes((2, 3)):
            rank = len(boxes.shape) - 1
            flat = [tensor for tensor in self.outputs if len(tensor.shape) == rank]
            scores = [tensor for tensor in flat if _is_float(tensor)]
            classes = [tensor for tensor in flat if np.dtype(tensor.dtype).kind in "iu"]
            if len(scores) == len(classes) == 1:
                unit = (1.0, 1.0) if rank == 1 else self.size
                return ListHead(boxes.name, scores[0].name, classes[0].name, unit)
        return None

    def _tensorflow(self, extras: int) -> Head | None:
        def called(word: str) -> str:
            names = [tensor.name for tensor in self.outputs if word in tensor.name]
            return min(names, key=len) if names else ""

        boxes, scores = called("detection_boxes"), called("detection_scores")
        classes, count = called("detection_classes"), called("num_detections")
        if extras or not (boxes and scores and classes):
            return None
        return ListHead(boxes, scores, classes, self.size, count, is_y_first=True)

    def _ssd(self, extras: int) -> Head | None:
        rows = [tensor for tensor in self.outputs if _is_float(tensor) and len(tensor.shape) == 3]
        boxes = self._boxes((3,))
        if extras or len(rows) != 2 or not boxes:
            return None
        if len(boxes) == 2:  # three classes and the background look like boxes
            boxes = [tensor for tensor in boxes if "box" in tensor.name.lower()][:1]
        scores = [tensor for tensor in rows if tensor not in boxes and tensor.shape[2] > 1]
        if len(boxes) != 1 or len(scores) != 1:
            return None
        return PriorsHead(boxes[0].name, scores[0].name, self.size)


def _is_float(tensor: Tensor) -> bool:
    return np.dtype(tensor.dtype).kind == "f"


def _class_axis(tensor: Tensor, size: tuple[int, int]) -> tuple[int | None] | None:
    """Return the axis of the classes in a one-tuple, of None if the output has their numbers.

    None if the output is not an image of the input's proportions.
    """
    shape = tensor.shape
    if len(shape) in (3, 4) and shape[0] != 1:
        return None
    numbers = len(shape) == 3 or (len(shape) == 4 and shape[1] == 1)
    if numbers and np.dtype(tensor.dtype).kind in "iu":
        return (None,) if _same_proportions(shape[-2:], size) else None
    if len(shape) == 4 and _is_float(tensor):
        if _same_proportions(shape[2:], size):
            return (1,)
        if _same_proportions(shape[1:3], size):
            return (3,)
    return None


def _same_proportions(grid: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Whether a grid (rows, columns) has the proportions of the input but for rounding."""
    rows, columns = grid
    return rows > 1 and columns > 1 and abs(rows * size[0] - columns * size[1]) < max(size) * 2
