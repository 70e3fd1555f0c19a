"""A decoder is chosen by cluster.yaml, the model's metadata, or the shapes of its outputs."""

from __future__ import annotations

import pytest

from cnn.network import Tensor
from launcher.config.task import TaskConfig
from launcher.errors import BadInputError
from launcher.tasks.decoders import ClassDecoder, Decoder, MapDecoder, ObjectDecoder
from launcher.tasks.heads import EndToEndHead, GridHead, ListHead, PriorsHead
from launcher.tasks.metadata import MOST_CLASSES, ModelFacts, model_facts
from launcher.tasks.recognition import Recognition

SIZE = (640, 640)
COCO = {"names": str({number: f"class {number}" for number in range(80)})}


def output(name: str, *shape: int, dtype: str = "float32", varies: bool = False) -> Tensor:
    return Tensor(name, shape, dtype, varies)


def recognised(
    *outputs: Tensor, metadata: dict[str, str] | None = None, **task: object
) -> Decoder | None:
    facts = model_facts(metadata or {})
    return Recognition(outputs, SIZE, facts, facts.names).decoder(TaskConfig(**task))  # type: ignore[arg-type]


def head_of(decoder: Decoder | None) -> object:
    assert isinstance(decoder, ObjectDecoder)
    return decoder.head


BOXES = output("b", 100, 4, varies=True)
SCORES = output("s", 100, varies=True)
LABELS = output("l", 100, dtype="int64", varies=True)


@pytest.mark.parametrize(
    ("outputs", "head"),
    [
        ((output("o", 1, 84, 8400),), GridHead("o", 80)),
        ((output("o", 1, 5, 8400),), GridHead("o", 1)),
        (
            (output("o", 1, 25200, 85),),
            GridHead("o", 80, rows_last=False, has_objectness=True),
        ),
        (
            (output("o", 1, 25200, 6),),
            GridHead("o", 1, rows_last=False, has_objectness=True),
        ),
        ((output("o", 1, 300, 6),), EndToEndHead("o")),
        ((LABELS, BOXES, SCORES), ListHead("b", "s", "l")),
        (
            (output("b", 1, 9, 4), output("l", 1, 9, dtype="int64"), output("s", 1, 9)),
            ListHead("b", "s", "l", SIZE),
        ),
        (
            (
                output("detection_boxes:0", 1, 9, 4),
                output("detection_classes:0", 1, 9),
                output("detection_scores:0", 1, 9),
                output("num_detections:0", 1),
            ),
            ListHead(
                "detection_boxes:0", "detection_scores:0", "detection_classes:0", SIZE,
                "num_detections:0", is_y_first=True,
            ),
        ),
        ((output("scores", 1, 4420, 2), output("boxes", 1, 4420, 4)),
         PriorsHead("boxes", "scores", SIZE)),
        ((output("scores", 1, 4420, 4), output("boxes", 1, 4420, 4)),
         PriorsHead("boxes", "scores", SIZE)),
    ],
)  # fmt: skip
def test_the_form_of_boxes_follows_from_the_outputs_shapes(
    outputs: tuple[Tensor, ...], head: object
) -> None:
    assert head_of(recognised(*outputs, kind="detect")) == head


def test_the_number_of_names_tells_forms_apart_that_shapes_do_not() -> None:
    few_rows = output("o", 1, 84, 21)  # more channels than cells: a very small image
    assert head_of(recognised(few_rows, metadata=COCO, kind="detect")) == GridHead("o", 80)


def test_the_head_that_the_user_names_wins() -> None:
    task = recognised(output("o", 1, 300, 6), kind="detect", head="yolov5")
    assert head_of(task) == GridHead("o", 1, rows_last=False, has_objectness=True)


def test_metadata_name_the_task_its_classes_and_its_key_points() -> None:
    says = {"task": "pose", "names": "{0: 'person'}", "kpt_shape": "[5, 2]"}
    task = recognised(output("o", 1, 15, 8400), metadata=says)
    assert isinstance(task, ObjectDecoder)
    assert (task.kind, task.points, task.names) == ("pose", (5, 2), ("person",))
    assert task.head == GridHead("o", 1, 10)
    says = {**COCO, "task": "detect", "head": "RTDETRDecoder"}
    detr = head_of(recognised(output("o", 1, 300, 84), metadata=says))
    assert detr == GridHead("o", 80, rows_last=False, unit=SIZE, overlaps=False)
    detr = head_of(recognised(output("o", 1, 300, 6), metadata=says))
    assert detr == EndToEndHead("o", is_centred=True, unit=SIZE)


def test_the_user_may_say_how_many_key_points_there_are() -> None:
    task = recognised(output("o", 1, 14, 8400), kind="pose", points=(3, 3))
    assert isinstance(task, ObjectDecoder)
    assert (task.points, task.head) == ((3, 3), GridHead("o", 1, 9))


def test_masks_and_turned_boxes_have_extras() -> None:
    prototypes = output("p", 1, 32, 160, 160)
    task = recognised(output("o", 1, 116, 8400), prototypes, kind="segment")
    assert isinstance(task, ObjectDecoder)
    assert (task.prototypes, task.head) == ("p", GridHead("o", 80, 32))
    assert head_of(recognised(output("o", 1, 300, 38), prototypes, kind="segment")) == (
        EndToEndHead("o", 32)
    )
    turned = recognised(output("o", 1, 20, 8400), kind="obb")
    assert head_of(turned) == GridHead("o", 15, 1, is_turned=True)


@pytest.mark.parametrize(
    ("tensor", "axis"),
    [
        (output("o", 1, 21, 640, 640), 1),
        (output("o", 1, 160, 160, 21), 3),
        (output("o", 1, 1, 640, 640, dtype="int64"), None),
        (output("o", 1, 640, 640, dtype="uint8"), None),
        (output("o", 1, 1, 640, 640), 1),
    ],
)
def test_the_axis_of_classes_follows_from_the_shape(tensor: Tensor, axis: int | None) -> None:
    assert recognised(tensor, kind="semantic") == MapDecoder("o", axis, SIZE)


def test_a_classifier_is_recognised_without_a_word() -> None:
    assert recognised(output("o", 1, 1000)) == ClassDecoder("o", 5)


PROTOTYPES = output("p", 1, 32, 160, 160)


@pytest.mark.parametrize(
    ("outputs", "kind", "head"),
    [
        ((output("o", 1, 84, 8400),), "detect", GridHead("o", 80)),
        ((output("o", 1, 5, 34000),), "detect", GridHead("o", 1)),  # strides from 4 on
        ((output("o", 1, 84, 2000),), "detect", GridHead("o", 80)),  # YOLOv3-tiny
        (
            (output("o", 1, 25200, 85), output("grid", 1, 3, 80, 80, 85)), "detect",
            GridHead("o", 80, rows_last=False, has_objectness=True),
        ),
        ((output("o", 1, 116, 8400), PROTOTYPES), "segment", GridHead("o", 80, 32)),
        (
            (output("o", 1, 25200, 117), PROTOTYPES), "segment",
            GridHead("o", 80, 32, rows_last=False, has_objectness=True),
        ),
        ((LABELS, BOXES, SCORES), "detect", ListHead("b", "s", "l")),
    ],
)  # fmt: skip
def test_a_form_that_only_detectors_have_is_recognised_without_a_word(
    outputs: tuple[Tensor, ...], kind: str, head: object
) -> None:
    decoder = recognised(*outputs)
    assert isinstance(decoder, ObjectDecoder)
    assert (decoder.kind, decoder.head) == (kind, head)


@pytest.mark.parametrize(
    "outputs",
    [
        (output("o", 1, 300, 6),),  # corners, or centre and size?
        (output("o", 1, 8400, 85),),  # YOLOX, whose boxes may be in cells of its grids
        (output("o", 1, 56, 8400),),  # 17 key points, or 52 classes?
        (output("o", 1, 25200, 57),),
        (output("o", 1, 4, 8400),),  # no class
        (output("b", 1, 100, 4), output("l", 1, 100, 92)),  # DETR
        (output("o", 1, 84, 8400), output("q", 1, 84, 8400)),
    ],
)
def test_a_form_that_may_mean_something_else_is_left_alone(outputs: tuple[Tensor, ...]) -> None:
    with pytest.raises(BadInputError, match="does not say what its outputs mean"):
        recognised(*outputs)


def test_names_without_a_task_must_be_as_many_as_the_classes_of_the_form() -> None:
    """As the repository of YOLOv5 writes them."""
    rows = output("o", 1, 25200, 85)
    assert head_of(recognised(rows, metadata=COCO)) == head_of(recognised(rows))
    with pytest.raises(BadInputError, match="does not say"):
        recognised(rows, metadata={"names": "['a', 'b']"})


def test_the_kind_none_decodes_nothing() -> None:
    assert recognised(output("o", 1, 1000), kind="none") is None


@pytest.mark.parametrize(
    ("outputs", "task", "sentence"),
    [
        (
            (output("o", 1, 84, 4000),), {},
            "the model does not say what its outputs mean (o float32 [1, 84, 4000]); write one of "
            "classify, detect, segment, pose, obb, semantic, none",
        ),
        ((output("o", 1, 10),), {"kind": "detect"}, "do not have any form known here for detect"),
        (
            (output("o", 1, 84, 8400),), {"kind": "detect", "head": "ssd"},
            "the outputs do not have the form ssd for detect",
        ),
        ((output("o", 1, 84, 8400),), {"kind": "segment"}, "for classes of pixels write semantic"),
        ((output("o", 1, 84, 8400),), {"kind": "semantic"}, "semantic needs an output [1, classes"),
        ((output("o", 1, 84, 84),), {"kind": "classify"}, "needs an output with one score per"),
    ],
)  # fmt: skip
def test_what_cannot_be_decoded_is_said_with_what_to_write(
    outputs: tuple[Tensor, ...], task: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadInputError) as error:
        recognised(*outputs, **task)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{0: 'person', 1: \"cat's\"}", ("person", "cat's")),
        ("['a', 'b']", ("a", "b")),
        ("{2: 'c', 0: 'a'}", ("a", "", "c")),
        ("{0: 'a\\nb\\u202e'}", ("a�b�",)),
        (f"{{0: '{'x' * 300}'}}", ("x" * 100,)),
        ("", ()),
        ("{}", ()),
        ("[]", ()),
        ("{0: 1}", ()),
        ("{0: 'a'", ()),
        ("{'a': 0}", ()),
        ("__import__('os')", ()),
        ("{0: __import__('os')}", ()),
        ("[" * 100_000, ()),
        ("-" * 100_000 + "1", ()),
        ("{0: '\\x'}", ()),
        (f"{{{MOST_CLASSES}: 'a'}}", ()),
        (f"{{0: '{'x' * (1 << 20)}'}}", ()),
    ],
)
def test_names_are_read_as_python_writes_them_and_nothing_else_is(
    text: str, names: tuple[str, ...]
) -> None:
    assert model_facts({"names": text}).names == names


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("[17, 3]", (17, 3)),
        ("(4, 2)", (4, 2)),
        ("[17, 4]", None),
        ("[0, 3]", None),
        ("[99999, 3]", None),
        ("[17, 3, 1]", None),
        ("17", None),
        ("[1e9, 3]", None),
    ],
)
def test_key_points_are_two_small_numbers(text: str, points: tuple[int, int] | None) -> None:
    assert model_facts({"kpt_shape": text}).points == points


def test_the_size_of_images_is_read_from_metadata() -> None:
    sizes = [model_facts({"imgsz": text}).size for text in ("[384, 640]", "320", "[1, 2, 3]", "x")]
    assert sizes == [(384, 640), (320, 320), None, None]


def test_a_model_without_metadata_says_nothing() -> None:
    assert model_facts({}) == ModelFacts()
