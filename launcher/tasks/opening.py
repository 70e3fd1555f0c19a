"""Fits images to a cluster's network, and decodes what it finds in them: `open_task`.

A task fits an image to the network's input and remembers how (`ImagePlacement`), so that what the
network finds can be given in pixels of the source's image. All boxes and points are in such pixels:
x to the right, y down, from the outer corner of the top left pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from cnn.model import Model
from launcher.config.ends.sink import Predictions
from launcher.config.load import Cluster
from launcher.config.network import Resize
from launcher.config.task import FINDS_PLACES, TaskConfig, TaskKind
from launcher.errors import BadInputError
from launcher.inputs.fitting import ImageFormat, ImagePlacement, fit, image_format, image_size
from launcher.inputs.images import MOST_PIXELS, pixels_of
from launcher.tasks.classes import is_classifier, read_labels
from launcher.tasks.decoders import ClassDecoder, Decoder, MapDecoder, ObjectDecoder
from launcher.tasks.metadata import model_facts, printable
from launcher.tasks.recognition import RT_DETR, Recognition
from nodes.protocol.payload import Array

_MEANINGS = {
    "classify": "scores of classes",
    "detect": "boxes",
    "segment": "boxes and masks",
    "pose": "boxes and key points",
    "obb": "turned boxes",
    "semantic": "classes of pixels",
}


@dataclass(frozen=True, slots=True)
class FittedImage:
    """An image as the network takes it (`inputs`), and where it lies there.

    `image` is what was read: uint8 [height, width, 3] in RGB.
    """

    inputs: Mapping[str, Array]
    placement: ImagePlacement
    image: Array


@dataclass(frozen=True, slots=True)
class Task:
    """Fits images to a network with one input, and decodes its outputs.

    `wanted` is the reason why the network takes no image, if it takes none; `undecoded` is the
    reason why its outputs have no known meaning, if they have none.
    """

    input: str
    wanted: ImageFormat | BadInputError
    decoder: Decoder | None = None
    undecoded: BadInputError | None = None

    def prepare(self, image: Array) -> tuple[Mapping[str, Array], ImagePlacement]:
        """Return the network's inputs for an image, uint8 [height, width, 3] in RGB.

        Raises `BadInputError` if the network or the array is not for images.
        """
        if isinstance(self.wanted, BadInputError):
            raise self.wanted
        array, placement = fit(image, self.wanted)
        return {self.input: array}, placement

    def read(self, content: bytes, *, most_pixels: int = MOST_PIXELS) -> FittedImage:
        """Return an image from a PNG or JPEG file's content, fitted to the network.

        Raises `BadInputError` if the network is not for images, if the content is not an image,
        or if the image has more than `most_pixels`.
        """
        if isinstance(self.wanted, BadInputError):
            raise self.wanted
        image = pixels_of(content, most_pixels=most_pixels)
        inputs, placement = self.prepare(image)
        return FittedImage(inputs, placement, image)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, as far as they are known."""
        match self.decoder:
            case ClassDecoder(names=names) | ObjectDecoder(names=names) | MapDecoder(names=names):
                return names
            case _:
                return ()

    def decode(
        self, outputs: Mapping[str, Array], placement: ImagePlacement | None
    ) -> Predictions | None:
        """Return the predictions, None if the network has no known meaning.

        Without a `placement`, the network's inputs were given as arrays; boxes and points are then
        in pixels of the network's input. Raises `RunFailedError` for outputs of another form.
        """
        if self.decoder is None or isinstance(self.wanted, BadInputError):
            return None
        whole = ImagePlacement(self.wanted.width, self.wanted.height)
        return self.decoder.decode(outputs, placement or whole)

    def check_predicts(self) -> None:
        """Raise `BadInputError`, which says why, unless images become predictions."""
        if isinstance(self.wanted, BadInputError):
            raise self.wanted
        if self.decoder is None:
            raise self.undecoded or BadInputError("the network's outputs are not decoded")


def open_task(cluster: Cluster, model: Model) -> Task:
    """Return the task before and after `model`, a network of the cluster.

    Without the key `task`, outputs are decoded if the model's metadata name a task, if it is a
    classifier, or if its outputs have a form that only detectors have. A network that takes no
    image gets a task whose `prepare` raises `BadInputError`. Raises `BadInputError`, with file and
    line, for a `task` or an `input` that does not suit it.
    """
    network = model.network
    task = cluster.task_of(network.name)
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
        return Task("", error)
    decoder, undecoded = _decoder(cluster, model, wanted)
    return Task(tensors[0].name, wanted, decoder, undecoded)


def assumed(cluster: Cluster, model: Model) -> str:
    """Return a sentence on what is assumed of images and outputs of `model`.

    It is empty if `cluster.yaml` has a kind of task, and if images do not become predictions.
    Raises as `open_task` does.
    """
    given = cluster.task_of(model.network.name)
    if given is not None and given.kind != "auto":
        return ""
    task = open_task(cluster, model)
    if isinstance(task.wanted, BadInputError) or task.decoder is None:
        return ""
    facts, kind = model_facts(model.metadata), kind_of(given, model)
    fitted = f"{model.network.name}: images are {task.wanted.description}"
    origin = "the model's metadata say so" if facts.task == kind else "their form suggests it"
    size = (task.wanted.height, task.wanted.width)
    stated = ", which is its imgsz" if facts.size == size else ""
    return (
        f"{fitted}{stated}; outputs are {_MEANINGS[kind]}: {origin}. "
        "The keys task and input change it"
    )


def format_of(cluster: Cluster, model: Model) -> ImageFormat:
    """Return how images are fitted to the input of `model`; raises `BadInputError`."""
    config, network = cluster.config, model.network
    where = ("inputs", network.name) if network.name in config.inputs else ("input",)
    has_imagenet_pixels, usual_resize = usual_fitting(cluster.task_of(network.name), model)
    return image_format(
        network.tensors[network.inputs[0]],
        config.inputs.get(network.name, config.input),
        is_classifier=has_imagenet_pixels,
        where=cluster.source.where(where),
        usual_resize=usual_resize,
    )


def kind_of(task: TaskConfig | None, model: Model) -> TaskKind:
    """Return what the network finds, by the key `task` or by the model itself; `none` if unknown.

    >>> import cnn
    >>> kind_of(None, cnn.read("examples/digits/digits.onnx"))
    'classify'
    """
    tensors, network = model.network.tensors, model.network
    size = image_size(tensors[network.inputs[0]]) if len(network.inputs) == 1 else None
    outputs = tuple(tensors[name] for name in network.outputs)
    known = Recognition(outputs, size or (0, 0), model_facts(model.metadata))
    try:
        return known.kind(task or TaskConfig())
    except BadInputError:
        return "none"


def usual_fitting(task: TaskConfig | None, model: Model) -> tuple[bool, Resize]:
    """Return what applies to images where `input` does not say otherwise.

    That is, whether pixels are normalised with ImageNet's mean and deviation, as almost all
    classifiers but ultralytics' need it, and the way of resizing: letterbox for a network that
    finds places in the image, which should show all of it, and stretch for RT-DETR, which is
    trained so. Without OpenCV, which letterbox needs, bars are black unless a `task` asks for it.
    """
    facts = model_facts(model.metadata)
    is_normalised = is_classifier(model.network) and not facts.is_ultralytics
    if kind_of(task, model) not in FINDS_PLACES:
        return is_normalised, "crop"
    if facts.head == RT_DETR:
        return is_normalised, "stretch"
    has_letterbox = task is not None or find_spec("cv2") is not None
    return is_normalised, "letterbox" if has_letterbox else "pad"


def _decoder(
    cluster: Cluster, model: Model, wanted: ImageFormat
) -> tuple[Decoder | None, BadInputError | None]:
    """Return the decoder, or the reason why there is none."""
    config, facts = cluster.config, model_facts(model.metadata)
    task, where = cluster.task_of(model.network.name), cluster.task_key(model.network.name)
    names = facts.names
    if config.labels is not None:
        names = tuple(map(printable, read_labels(cluster.path(config.labels))))
    outputs = tuple(model.network.tensors[name] for name in model.network.outputs)
    known = Recognition(outputs, (wanted.width, wanted.height), facts, names)
    try:
        decoder = known.decoder(task or TaskConfig())
    except BadInputError as error:
        located = cluster.error(where, str(error))
        if task is None:
            return None, located
        raise located from None
    if decoder is None:
        return None, cluster.error(where, "none: the outputs are left as they are")
    if isinstance(decoder, ObjectDecoder) and decoder.head.overlaps and find_spec("cv2") is None:
        lacking = BadInputError(
            "the best boxes are chosen by OpenCV: install csdf-edge with its extra 'stream' "
            "(pip install 'csdf-edge[stream]')"
        )
        if task is None:
            return None, lacking
        raise lacking
    return decoder, None
