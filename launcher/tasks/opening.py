"""Opens the task of a cluster's network: `open_task`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cnn.model import Model
from launcher.config.cluster import Resize
from launcher.config.ends.sink import Predictions
from launcher.config.load import Cluster
from launcher.config.task import FINDS_PLACES, TaskConfig
from launcher.errors import BadInputError
from launcher.inputs.fitting import ImageFormat, fit, image_format
from launcher.inputs.placement import ImagePlacement
from launcher.tasks.base import Array, Task
from launcher.tasks.classes import is_classifier, read_labels
from launcher.tasks.decoders import Decoder
from launcher.tasks.metadata import model_facts, printable
from launcher.tasks.recognition import RT_DETR, Recognition


@dataclass(frozen=True, slots=True)
class NetworkTask:
    """The task of a network with one input; implements `Task`.

    `wanted` is the reason why the network takes no image, if it takes none.
    """

    input: str
    wanted: ImageFormat | BadInputError
    decoder: Decoder | None = None

    def prepare(self, image: Array) -> tuple[Mapping[str, Array], ImagePlacement]:
        """See `Task`; raises `BadInputError` if the network or the array is not for images."""
        if isinstance(self.wanted, BadInputError):
            raise self.wanted
        array, placement = fit(image, self.wanted)
        return {self.input: array}, placement

    def decode(
        self, outputs: Mapping[str, Array], placement: ImagePlacement | None
    ) -> Predictions | None:
        """See `Task`."""
        if self.decoder is None or isinstance(self.wanted, BadInputError):
            return None
        whole = ImagePlacement(self.wanted.width, self.wanted.height)
        return self.decoder.decode(outputs, placement or whole)


def open_task(cluster: Cluster, model: Model) -> Task:
    """Return the task before and after `model`, a network of the cluster.

    Without the key `task`, outputs are decoded if the model's metadata name a task, or if it is a
    classifier. A network that takes no image gets a task whose `prepare` raises `BadInputError`.
    Raises `BadInputError`, with file and line, for a `task` or an `input` that does not suit it.
    """
    task, network = cluster.config.task, model.network
    tensors = [network.tensors[name] for name in network.inputs]
    try:
        if len(tensors) != 1:
            raise BadInputError(
                f"{cluster.source.where(('input',))}: an image is one input, but the model has "
                f"{len(tensors)} ({', '.join(network.inputs)}); give arrays by name"
            )
        wanted = format_of(cluster, model)
    except BadInputError as error:
        if task is not None and task.kind != "none":
            raise
        return NetworkTask("", error)
    return NetworkTask(tensors[0].name, wanted, _decoder(cluster, model, wanted))


def format_of(cluster: Cluster, model: Model) -> ImageFormat:
    """Return how images are fitted to the input of `model`; raises `BadInputError`."""
    config, network = cluster.config, model.network
    where = ("inputs", network.name) if network.name in config.inputs else ("input",)
    has_imagenet_pixels, usual_resize = usual_fitting(config.task, model)
    return image_format(
        network.tensors[network.inputs[0]],
        config.inputs.get(network.name, config.input),
        is_classifier=has_imagenet_pixels,
        where=cluster.source.where(where),
        usual_resize=usual_resize,
    )


def usual_fitting(task: TaskConfig | None, model: Model) -> tuple[bool, Resize]:
    """Return what applies to images where `input` does not say otherwise.

    That is, whether pixels are normalised with ImageNet's mean and deviation, as almost all
    classifiers but ultralytics' need it, and the way of resizing: letterbox for a `task` that finds
    places in the image, which should show all of it, and stretch for RT-DETR, which is trained so.
    """
    facts = model_facts(model.metadata)
    kind = "none" if task is None else facts.task if task.kind == "auto" else task.kind
    is_normalised = is_classifier(model.network) and not facts.is_ultralytics
    if kind not in FINDS_PLACES:
        return is_normalised, "crop"
    return is_normalised, "stretch" if facts.head == RT_DETR else "letterbox"


def _decoder(cluster: Cluster, model: Model, wanted: ImageFormat) -> Decoder | None:
    config, facts = cluster.config, model_facts(model.metadata)
    names = facts.names
    if config.labels is not None:
        names = tuple(map(printable, read_labels(cluster.path(config.labels))))
    outputs = tuple(model.network.tensors[name] for name in model.network.outputs)
    known = Recognition(outputs, (wanted.width, wanted.height), facts, names)
    try:
        return known.decoder(config.task or TaskConfig())
    except BadInputError as error:
        if config.task is None:
            return None
        raise cluster.error(("task",), str(error)) from None
