"""Writes boxes as the outputs of networks of every form that is decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from launcher.tasks.heads import EndToEndHead, GridHead, Head, ListHead, PriorsHead

SIZE = (96, 64)
"""Width and height of the network's input."""

CLASSES = 5
ROWS = 40
"""Rows of an output of fixed length."""


@dataclass(frozen=True)
class Scene:
    """Boxes [n, 4], corners in the network's pixels, their classes (from 1 on) and scores."""

    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray
    extras: np.ndarray

    @property
    def centred(self) -> np.ndarray:
        low, high = self.boxes[:, :2], self.boxes[:, 2:]
        return np.concatenate([(low + high) / 2, high - low], axis=1)

    @property
    def one_hot(self) -> np.ndarray:
        scores = np.zeros((len(self.scores), CLASSES))
        scores[np.arange(len(self.scores)), self.classes] = self.scores
        return scores


def scene(
    boxes: np.ndarray, classes: object = 1, scores: object = 0.9, extras: np.ndarray | None = None
) -> Scene:
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    count = len(boxes)
    return Scene(
        boxes,
        np.broadcast_to(np.asarray(classes), (count,)),
        np.broadcast_to(np.asarray(scores, np.float64), (count,)),
        np.empty((count, 0)) if extras is None else extras,
    )


Outputs = dict[str, np.ndarray]


def _rows(*columns: np.ndarray, rows: int = ROWS) -> np.ndarray:
    joined = np.concatenate(columns, axis=1)
    padding = np.zeros((max(0, rows - len(joined)), joined.shape[1]))
    return np.concatenate([joined, padding])[None].astype(np.float32)


def yolov8(of: Scene) -> tuple[Head, Outputs]:
    output = _rows(of.centred, of.one_hot, of.extras).transpose(0, 2, 1)
    return GridHead("o", CLASSES, of.extras.shape[1]), {"o": output}


def yolov5(of: Scene) -> tuple[Head, Outputs]:
    objectness = np.sqrt(of.scores)[:, None]
    scores = of.one_hot / np.maximum(objectness, 1e-9)
    head = GridHead("o", CLASSES, of.extras.shape[1], rows_last=False, has_objectness=True)
    return head, {"o": _rows(of.centred, objectness, scores, of.extras)}


def rt_detr(of: Scene) -> tuple[Head, Outputs]:
    head = GridHead("o", CLASSES, rows_last=False, unit=SIZE, overlaps=False)
    return head, {"o": _rows(of.centred / (SIZE * 2), of.one_hot)}


def rt_detr_chosen(of: Scene) -> tuple[Head, Outputs]:
    output = _rows(of.centred / (SIZE * 2), of.scores[:, None], of.classes[:, None])
    return EndToEndHead("o", is_centred=True, unit=SIZE), {"o": output}


def end_to_end(of: Scene) -> tuple[Head, Outputs]:
    output = _rows(of.boxes, of.scores[:, None], of.classes[:, None], of.extras)
    return EndToEndHead("o", of.extras.shape[1]), {"o": output}


def ssd(of: Scene) -> tuple[Head, Outputs]:
    outputs = {"b": _rows(of.boxes / (SIZE * 2)), "s": _rows(of.one_hot)}
    return PriorsHead("b", "s", SIZE), outputs


def torchvision(of: Scene) -> tuple[Head, Outputs]:
    outputs = {
        "b": of.boxes.astype(np.float32),
        "s": of.scores.astype(np.float32),
        "c": of.classes.astype(np.int64),
    }
    return ListHead("b", "s", "c"), outputs


def zoo_ssd(of: Scene) -> tuple[Head, Outputs]:
    _, outputs = torchvision(of)
    outputs["b"] = outputs["b"] / np.float32(SIZE * 2)
    return ListHead("b", "s", "c", SIZE), {key: array[None] for key, array in outputs.items()}


def tensorflow(of: Scene) -> tuple[Head, Outputs]:
    boxes = _rows(of.boxes / (SIZE * 2))[:, :, (1, 0, 3, 2)]
    scores = np.full((1, ROWS), 0.99, np.float32)  # what stands behind the count is not valid
    scores[0, : len(of.scores)] = of.scores
    classes = np.ones((1, ROWS), np.float32)
    classes[0, : len(of.scores)] = of.classes
    outputs = {"b": boxes, "s": scores, "c": classes, "n": np.float32([len(of.scores)])}
    return ListHead("b", "s", "c", SIZE, "n", is_y_first=True), outputs


FORMS: dict[str, Callable[[Scene], tuple[Head, Outputs]]] = {
    "yolov8": yolov8,
    "yolov5": yolov5,
    "rt-detr": rt_detr,
    "rt-detr, chosen": rt_detr_chosen,
    "end-to-end": end_to_end,
    "ssd": ssd,
    "torchvision": torchvision,
    "zoo's ssd": zoo_ssd,
    "tensorflow": tensorflow,
}
