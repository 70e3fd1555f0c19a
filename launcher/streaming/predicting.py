"""Turns what a program has (a path, bytes, a picture, an array, a camera) into predictions.

`picture_of` takes one image in any of these forms, `Pictures` all images of a source, and
`PredictionStream` streams them through a network: one thread reads and fits them, and the thread
that takes the predictions decodes them.
"""

from __future__ import annotations

import io
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from PIL import Image
from pydantic import ValidationError

from launcher.config.ends.kinds import parsed_source
from launcher.config.ends.looks import is_source
from launcher.config.ends.sink import FrameResult, Predictions
from launcher.config.ends.source import Source, SourceFrame
from launcher.config.load import matching_files, unmatched
from launcher.config.run import ReconnectConfig
from launcher.errors import BadInputError, reason, shortened
from launcher.inputs.fitting import ImagePlacement
from launcher.inputs.images import SUFFIXES, pixels_of, read_pixels, upright
from launcher.run.streamed_results import StreamedResults, Submit
from launcher.streaming.reading import Reader
from launcher.tasks.opening import Task
from launcher.tasks.predictions import ClassMap, FoundObject, FoundObjects, ImageClasses, name_of
from launcher.threads import in_thread
from nodes.protocol.payload import Array

Frame = Mapping[str, Array]

Picture: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Image.Image | Array"
"""One image: the path of a PNG or JPEG file, its bytes, a picture of Pillow, or an array, uint8
[height, width, 3] in RGB, [height, width, 4] with opacity, or [height, width] in grey."""

Origin: TypeAlias = "Picture | int | Mapping[str, Any] | Source | Iterable[Picture]"
"""Images: a folder, a glob, a video, a camera's address, device or number, the mapping of a source
as in `cluster.yaml`, a source, an iterable of images, or one image."""

LIVE_QUEUE_FRAMES, QUEUE_FRAMES = 1, 8
"""How many frames wait to be fitted: of a live source the latest, of others as many as help."""

JPEG_QUALITY = 90
"""The quality of the picture that a notebook shows."""

_log = logging.getLogger("csdf-edge")


@dataclass(frozen=True, eq=False)
class ImagePrediction:
    """Holds what a network found in one image.

    All coordinates are in pixels of that image: x to the right, y down, from the outer corner of
    the top left pixel.

    The arrays have a row for each object, the best score first; of a classifier, `scores`,
    `classes` and `names` are those of the likeliest classes.
    """

    image: Array
    """The image as its source gave it, uint8 [height, width, 3] in RGB."""
    found: Predictions
    """The decoded values (`FoundObjects`, `ImageClasses` or `ClassMap`), as sinks get them."""
    outputs: Mapping[str, Array]
    """The network's outputs by name."""
    name: str = ""
    """The name of the image's file, empty if it has none."""
    index: int = 0
    """The number of the frame in its source, from 0 on; frames that were dropped have numbers."""
    media_s: float | None = None
    """The presentation time in seconds from the beginning of the video, None if it has none."""

    @property
    def kind(self) -> str:
        """The kind of findings: classify, detect, segment, pose, obb or semantic."""
        if isinstance(self.found, FoundObjects):
            return self.found.kind
        return "classify" if isinstance(self.found, ImageClasses) else "semantic"

    @property
    def objects(self) -> tuple[FoundObject, ...]:
        """The objects; none of a classifier or of classes of pixels."""
        return self.found.objects if isinstance(self.found, FoundObjects) else ()

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.objects)

    def __bool__(self) -> bool:
        """Return True: there is a prediction, even if there is no object."""
        return True

    @property
    def boxes(self) -> Array:
        """The boxes, float64 [n, 4]: left, top, right and bottom in pixels."""
        return np.array([one.box for one in self.objects], np.float64).reshape(-1, 4)

    @property
    def scores(self) -> Array:
        """The scores in 0..1, float64 [n]."""
        return np.array([one.score for one in self._scored], np.float64)

    @property
    def classes(self) -> Array:
        """The numbers of the classes, int64 [n]; of classes of pixels, those that occur."""
        if isinstance(self.found, ClassMap):
            return np.array([one["class"] for one in self._areas], np.int64)
        return np.array([one.number for one in self._scored], np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `classes`, n texts; empty where a class has no name."""
        if isinstance(self.found, ClassMap):
            return tuple(name_of(number, self.found.names) for number in self.classes.tolist())
        return tuple(one.name for one in self._scored)

    @property
    def points(self) -> Array:
        """The key points, float64 [n, k, 2]: x and y in pixels; [n, k, 3] with a score in 0..1."""
        rows = [
            [(p.x, p.y) if p.score is None else (p.x, p.y, p.score) for p in one.points]
            for one in self.objects
        ]
        return np.array(rows, np.float64) if rows and rows[0] else np.empty((len(rows), 0, 3))

    @property
    def corners(self) -> Array:
        """The corners of turned boxes, float64 [n, 4, 2]; [n, 0, 2] of other kinds."""
        return np.array([one.corners for one in self.objects], np.float64).reshape(
            len(self), 4 if self.kind == "obb" else 0, 2
        )

    @property
    def masks(self) -> Array:
        """The pixels of each object, bool [n, height, width]; False where there is no mask."""
        height, width = self.image.shape[:2]
        masks = np.zeros((len(self), height, width), np.bool_)
        for whole, one in zip(masks, self.objects, strict=True):
            if one.mask is not None:
                rows, columns = one.mask.pixels.shape
                part = whole[one.mask.top :, one.mask.left :][:rows, :columns]
                part[...] = one.mask.pixels[: part.shape[0], : part.shape[1]]
        return masks

    @property
    def class_map(self) -> Array | None:
        """The class of each pixel, uint16 [height, width], 65535 where the network saw nothing;
        None unless the kind is semantic."""
        return self.found.classes if isinstance(self.found, ClassMap) else None

    def to_dict(self) -> dict[str, Any]:
        """Return the predictions as values of JSON: `index`, `name` and `media_s` of the frame, and
        what `docs/tasks.md` describes under "Predictions"."""
        about: dict[str, Any] = {"index": self.index}
        if self.name:
            about["name"] = self.name
        if self.media_s is not None:
            about["media_s"] = self.media_s
        return about | self.found.as_json()

    def plot(self) -> Image.Image:
        """Return a copy of the image with masks, boxes, key points, names and scores drawn on it.

        Raises `LauncherError` if OpenCV, which draws them, is not installed.
        """
        try:
            from launcher.sinks.drawing import annotated  # noqa: PLC0415 - it needs OpenCV
        except ModuleNotFoundError as error:
            raise BadInputError(
                "predictions are drawn by OpenCV: install csdf-edge with its extra 'stream' "
                "(pip install 'csdf-edge[stream]')"
            ) from error
        drawn = annotated(
            FrameResult(self.index, 0.0, self.outputs, predictions=self.found, image=self.image)
        )
        return Image.fromarray(drawn)

    def __repr__(self) -> str:
        height, width = self.image.shape[:2]
        if isinstance(self.found, FoundObjects):
            counts = Counter(one.name or f"class {one.number}" for one in self.objects)
            what = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"
        else:
            pairs = zip(self.names, self.classes.tolist(), strict=True)
            what = ", ".join(name or f"class {number}" for name, number in pairs) or "nothing"
        called = f"{self.name!r}, " if self.name else ""
        return f"<ImagePrediction {called}{width}×{height}: {self.kind} {what}>"

    def _repr_jpeg_(self) -> bytes:
        """Show the annotated image where a notebook shows this value."""
        content = io.BytesIO()
        self.plot().save(content, "JPEG", quality=JPEG_QUALITY)
        return content.getvalue()

    @property
    def _scored(self) -> Iterable[Any]:
        return self.found.classes if isinstance(self.found, ImageClasses) else self.objects

    @cached_property
    def _areas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.found.as_json()["classes"]
        return found


def picture_of(given: object) -> tuple[Array, str]:
    """Return an image, uint8 [height, width, 3] in RGB, and the name of its file, if it has one.

    See `Picture`. Raises `BadInputError` for what is not one, or cannot be read.
    """
    match given:
        case str() | os.PathLike():
            path = Path(os.path.expanduser(given))
            if is_source(os.fspath(given)):
                raise BadInputError(
                    f"{os.fspath(given)}: is not one image; predictions(…) takes videos, cameras "
                    "and folders"
                )
            if os.path.isdir(path):  # of a name that is too long, Path.is_dir raises
                raise BadInputError(f"{path}: is a folder; predictions(…) takes all its images")
            return read_pixels(path), path.name
        case bytes() | bytearray() | memoryview():
            return pixels_of(bytes(given)), ""
        case Image.Image():
            named = getattr(given, "filename", "")
            return _turned(given), os.path.basename(named)
        case np.ndarray():
            return _in_color(given), ""
        case _:
            raise BadInputError(
                "an image is a path, the bytes of a PNG or JPEG file, a picture of Pillow, or an "
                f"array, uint8 [height, width, 3], not {type(given).__name__}"
            )


def _turned(picture: Image.Image) -> Array:
    try:
        return np.asarray(upright(picture, "RGB"))
    except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
        raise BadInputError(f"the image cannot be read: {reason(error)}") from None


def _in_color(given: Array) -> Array:
    """Return an array of grey or with opacity in RGB; whether it is an image, `fit` checks."""
    if given.ndim == 2:
        given = given[:, :, None]
    if given.ndim == 3 and given.shape[2] == 1:
        return np.repeat(given, 3, axis=2)
    return given[:, :, :3] if given.ndim == 3 and given.shape[2] == 4 else given


@dataclass(frozen=True, eq=False)
class _Numbered:
    """An image that is not decoded yet, or the frame of a source."""

    given: object
    index: int
    name: str = ""
    media_s: float | None = None
    settle: Callable[[], None] = lambda: None

    def picture(self) -> tuple[Array, str]:
        pixels, name = picture_of(self.given)
        return pixels, self.name or name


class Pictures:
    """The images of an origin (`Origin`), which are read while they are iterated, once.

    Of a live source, the frames that nobody takes in time are dropped, and a source that is lost is
    connected again, as with `launch`. `close` may be called from any thread.
    """

    def __init__(self, given: object) -> None:
        """Raises `BadInputError` for an origin that can never give images."""
        self._reader: Reader | None = None
        self._given: Iterable[object] = ()
        source = _source_of(given)
        if source is not None:
            live = source.is_live
            self._reader = Reader(
                source,
                ReconnectConfig(),
                _log.warning,
                on_overload="drop-oldest" if live else "block",
                places=LIVE_QUEUE_FRAMES if live else QUEUE_FRAMES,
            )
        elif isinstance(given, str | os.PathLike):
            self._given = _files(os.fspath(given))
        elif isinstance(given, bytes | bytearray | memoryview | Image.Image) or (
            isinstance(given, np.ndarray) and given.ndim < 4
        ):
            self._given = (given,)
        elif isinstance(given, Iterable):
            self._given = given
        else:
            raise BadInputError(
                "images come from a folder, a glob, a video, a camera, or an iterable of images, "
                f"not {type(given).__name__}"
            )

    def __iter__(self) -> Iterator[_Numbered]:
        if self._reader is None:
            for index, given in enumerate(self._given):
                yield _Numbered(given, index)
        else:
            yield from self._read(self._reader)

    def _read(self, reader: Reader) -> Iterator[_Numbered]:
        reading = in_thread(reader.run, "source")
        while (numbered := reader.frames.take()) is not None:
            frame: SourceFrame = numbered.frame
            data = frame.data if frame.load is None else frame.load()
            if isinstance(data, Mapping):
                raise BadInputError(
                    f"{frame.name or reader.source.description}: holds arrays, and not an image"
                )
            yield _Numbered(data, numbered.index, frame.name, frame.media_s, frame.settle)
        reading.result()

    def close(self) -> None:
        """End the iteration, and close the source."""
        if self._reader is not None:
            self._reader.stop()


def _source_of(given: object) -> Source | None:
    """Return the source that is given or named; None if files or values are."""
    if isinstance(given, int) and not isinstance(given, bool):
        given = f"/dev/video{given}"
    if isinstance(given, os.PathLike):
        given = os.fspath(given)
    if hasattr(given, "frames") and hasattr(given, "is_live"):
        return cast("Source", given)
    if not isinstance(given, Mapping) and not (isinstance(given, str) and is_source(given)):
        return None
    try:
        return parsed_source(given).open(Path())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        what = first["msg"].removeprefix("Value error, ")
        raise BadInputError(f"the source{where and ' ' + where}: {what}") from None
    except ValueError as error:
        raise BadInputError(f"the source: {error}") from None


def _files(text: str) -> tuple[Path, ...]:
    """Return the images of a folder, those that match a glob, or the only one, in order."""
    folder = Path(os.path.expanduser(text))
    try:
        is_folder = folder.is_dir()
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise BadInputError(f"{shortened(text)!r}: is not a path: {reason(error)}") from None
    if is_folder:
        found = tuple(
            path
            for path in sorted(folder.iterdir())
            if path.suffix.lower() in SUFFIXES and path.is_file() and path.name[0] != "."
        )
        if not found:
            raise BadInputError(f"{folder}: has no images ({', '.join(SUFFIXES)})")
        return found
    found = matching_files(Path(), text)
    if not found:
        raise BadInputError(unmatched(Path(), text))
    return found


def prediction(
    task: Task,
    picture: tuple[Array, str],
    placement: ImagePlacement,
    outputs: Mapping[str, Array],
    index: int = 0,
    media_s: float | None = None,
) -> ImagePrediction:
    """Return what the outputs say about a picture; raises `RunFailedError` if they cannot."""
    found = task.decode(outputs, placement)
    if found is None:
        raise BadInputError("the network's outputs are not decoded")
    return ImagePrediction(picture[0], found, outputs, picture[1], index, media_s)


class PredictionStream:
    """Iterates the predictions of all images of an origin, in order, each as soon as it came.

    At most `most` images are read whose predictions were not taken. Errors of reading are raised
    after the predictions before.
    """

    def __init__(self, task: Task, given: object, submit: Submit[Frame], most: int) -> None:
        """Raises `BadInputError` if images do not become predictions, or for the origin."""
        task.check_predicts()
        self._task = task
        self._pictures = Pictures(given)
        self._fitted: deque[tuple[_Numbered, tuple[Array, str], ImagePlacement]] = deque()
        self._results = StreamedResults(submit, self._inputs(), lambda: most)

    def _inputs(self) -> Iterator[Frame]:
        for numbered in self._pictures:
            picture = numbered.picture()
            inputs, placement = self._task.prepare(picture[0])
            self._fitted.append((numbered, picture, placement))
            yield inputs

    def __iter__(self) -> Iterator[ImagePrediction]:
        """Yield the predictions; a consumer that stops iterating closes the source.

        The traceback of a user's mistake ends here: the functions that noticed it explain nothing.
        """
        try:
            yield from self._predictions()
        except BadInputError as error:
            raise error.with_traceback(None) from None

    def _predictions(self) -> Iterator[ImagePrediction]:
        try:
            while (outputs := self._results.next()) is not None:
                numbered, picture, placement = self._fitted.popleft()
                found = prediction(
                    self._task, picture, placement, outputs, numbered.index, numbered.media_s
                )
                numbered.settle()
                yield found
        finally:
            self.close()

    def close(self) -> None:
        """Read no more images, and cancel those that are not sent yet."""
        self._pictures.close()
        self._results.close()
