"""Answers `POST /v1/predict/MODEL`: a picture in, predictions or an annotated picture out.

A picture is a PNG or JPEG file: the body itself, or the file of a form. It is decoded and fitted to
the network in another thread, one picture at a time, so that hostile ones cannot multiply the
memory that decoding takes.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib.util import find_spec

from aiohttp import web

from launcher.clock import now_s
from launcher.config.ends.sink import FrameResult
from launcher.errors import BadInputError, shortened
from launcher.inputs.fitting import ImagePlacement
from launcher.inputs.images import decode_quickly
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.over_http import form
from launcher.serve.over_http.bodies import Bodies
from launcher.serve.over_http.form import Response
from launcher.serve.over_http.multipart import FORM_BYTES, is_form, only_file
from launcher.serve.routes import ServedVersion
from launcher.serve.service import Service
from launcher.sinks.result_json import result_as_json
from launcher.tasks.opening import FittedImage, Task

_log = logging.getLogger(__name__)

MOST_BYTES = 20 << 20
"""Bytes of a picture's file."""

MOST_PIXELS = 32_000_000
"""Pixels of a picture, twice those of usual cameras; decoding takes up to 12 bytes for each."""

MOST_KEPT_BYTES = 128 << 20
"""Bytes of decoded pictures that are kept until predictions are drawn on them."""

QUALITY = 90
"""Quality of annotated JPEG files, as in the sink `images`."""


class Wanted(Enum):
    """The form of an answer: its name in a request, and the suffix of the picture's file."""

    JSON = "json", ""
    JPEG = "jpeg", ".jpg"
    PNG = "png", ".png"
    BOTH = "both", ".jpg"

    @property
    def suffix(self) -> str:
        """The suffix of the annotated picture's file; empty without a picture."""
        return self.value[1]


def wanted_form(given: str | None, accept: str) -> Wanted:
    """Return the form that the parameter `as` names, or else the header Accept; JSON by default.

    Raises `RequestError` for another name.
    """
    if given is not None:
        for one in Wanted:
            if one.value[0] == given:
                return one
        names = ", ".join(one.value[0] for one in Wanted)
        raise RequestError(
            f"as={shortened(given)!r} is not a form of an answer; write one of {names}"
        )
    types = [one.partition(";")[0].strip().lower() for one in accept.split(",")]
    for kind in types:
        match kind:
            case "image/jpeg" | "image/*":
                return Wanted.JPEG
            case "image/png":
                return Wanted.PNG
            case "application/json" | "*/*":
                return Wanted.JSON
            case _:
                pass
    return Wanted.JSON


@dataclass
class Predicting:
    """Answers the requests of one server."""

    service: Service
    kept_bytes: int = 0
    """Bytes of the pictures that are kept."""
    _decoding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _without_pictures: set[str] = field(default_factory=set)
    """Models of which the log says already why they take no pictures."""

    def __post_init__(self) -> None:
        decode_quickly()

    async def answer(
        self, request: web.BaseRequest, served: ServedVersion, bodies: Bodies
    ) -> Response:
        """Return the answer to a picture. Raises `LauncherError`."""
        began_s = time.monotonic()
        wanted = wanted_form(request.query.get("as"), request.headers.get("Accept", ""))
        task = self._task(served, wanted)
        name, fitted = await _read(task, bodies)
        inputs, placement = fitted.inputs, fitted.placement
        image = fitted.image if wanted.suffix else None
        del fitted  # and with it the picture, unless something is drawn on it
        with self._keeping(0 if image is None else image.nbytes):
            trace = self.service.begin_trace(request.headers, served, "http", began_s)
            outputs = await self.service.infer(served, inputs, name, trace, placement)
            async with self._decoding:
                result = FrameResult(0, now_s(), outputs, name, image=image)
                return await asyncio.to_thread(_answered, served, task, result, placement, wanted)

    def _task(self, served: ServedVersion, wanted: Wanted) -> Task:
        """Return what fits pictures to the network. Raises `RequestError` if nothing does."""
        name, task = served.model.name, served.task
        if task is None or isinstance(task.wanted, BadInputError):
            if task is not None and name not in self._without_pictures:
                self._without_pictures.add(name)
                _log.warning("model %s takes no pictures: %s", name, task.wanted)
            raise RequestError(
                f"model {name!r} takes no pictures; send tensors to /v2/models/{name}/infer"
            )
        if wanted.suffix and task.decoder is None:
            raise RequestError(
                f"nothing can be drawn, because it is not known what the outputs of {name!r} mean: "
                "write task in the server's cluster.yaml, or ask for JSON"
            )
        if wanted.suffix and find_spec("cv2") is None:
            raise RequestError(
                "annotated pictures need OpenCV on the server: install csdf-edge[stream]; "
                "JSON needs it for some networks only",
                Refusal.NOT_OFFERED,
            )
        return task

    @contextmanager
    def _keeping(self, size_bytes: int) -> Iterator[None]:
        """Count the bytes of a picture that is kept; raises `RequestError` for too many."""
        if self.kept_bytes and self.kept_bytes + size_bytes > MOST_KEPT_BYTES:
            raise RequestError(
                "too many pictures wait for their predictions; try again later", Refusal.FULL
            )
        self.kept_bytes += size_bytes
        try:
            yield
        finally:
            self.kept_bytes -= size_bytes


async def _read(task: Task, bodies: Bodies) -> tuple[str, FittedImage]:
    """Return the picture's name, empty if it has none, and the picture; raises `LauncherError`."""

    def fit(name: str, content: bytes) -> tuple[str, FittedImage]:
        return name, task.read(content, most_pixels=MOST_PIXELS)

    why = "the limit for a picture"
    content_type = bodies.request.headers.get("Content-Type", "")
    if is_form(content_type):
        return await bodies.read(
            MOST_BYTES + FORM_BYTES,
            why,
            lambda body: fit(*only_file(body, content_type)),
            in_thread=True,
        )
    return await bodies.read(MOST_BYTES, why, lambda content: fit("", content), in_thread=True)


def _answered(
    served: ServedVersion,
    task: Task,
    result: FrameResult,
    placement: ImagePlacement,
    wanted: Wanted,
) -> Response:
    """Decode the result, and return it as it is wanted."""
    result = replace(result, predictions=task.decode(result.outputs, placement))
    picture = b""
    if wanted.suffix:
        from launcher.sinks.drawing import encoded  # noqa: PLC0415 - needs an extra

        picture = encoded(result, wanted.suffix, QUALITY)
        if wanted is not Wanted.BOTH:
            return Response(200, (picture,), content_type=f"image/{wanted.value[0]}")
    found = result_as_json(result)
    del found["index"]
    data: dict[str, object] = {"model": served.model.name, "version": served.model.version, **found}
    if picture:
        data["picture"] = f"data:image/jpeg;base64,{base64.b64encode(picture).decode()}"
    return form.write_json(data)
