"""Lists every network of the zoo by name, with its exporter and the expected outcome of reading it.

The exported networks lie in a folder of the user's cache.

This module imports nothing but the standard library, because two Pythons read it: the one that
exports has torch and keras, the one that checks has this project.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Shape = tuple[int, ...]

VARIABLE = "CSDF_EDGE_ZOO"
"""The environment variable that names another folder for the exported networks."""


def folder() -> Path:
    """The folder of the exported networks, made if absent."""
    named = os.environ.get(VARIABLE)
    found = Path(named) if named else Path.home() / ".cache" / "csdf-edge" / "zoo"
    found.mkdir(parents=True, exist_ok=True)
    return found


def file_of(name: str) -> Path:
    """The file of a network; it may not exist."""
    return folder() / f"{name}.onnx"


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    `exporter` is the module beside this one that makes it, by calling its `export(entry, file)`;
    `model` and `options` are for that module to read. `input_shapes` settles axes that the file
    leaves open, `inputs` binds inputs to constants, `state` maps those that are fed back to
    outputs, and `outputs` are the tensors at which the network stops, if not at the file's own
    outputs. `refused` is a part of the sentence with which the network is refused, "" if it must
    run.
    """

    name: str
    exporter: str
    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    input_shapes: Mapping[str, Shape] | Shape | None = None
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    state: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""


def _torchvision() -> Iterable[Entry]:
    image = (1, 3, 224, 224)
    classifiers = {
        "resnet18": {}, "mobilenet_v2": {}, "mobilenet_v3_small": {}, "mobilenet_v3_large": {},
        "efficientnet_b0": {}, "shufflenet_v2_x1_0": {}, "regnet_y_400mf": {}, "squeezenet1_1": {},
        "mnasnet0_5": {}, "googlenet": {"init_weights": False}, "densenet121": {}, "swin_t": {},
        "convnext_tiny": {}, "vit_b_32": {}, "swin_v2_t": {}, "resnext50_32x4d": {},
    }  # fmt: skip
    for name, arguments in classifiers.items():
        for way in ("old", "new"):
            options = {"shape": image, "dynamo": way == "new", "arguments": arguments}
            yield Entry(f"{name}-{way}", "torchvision_models", name, options)
    for name in ("mobilenet_v3_small", "resnet18", "swin_t"):
        options = {"shape": image, "dynamo": False, "dynamic": True, "arguments": {}}
        yield Entry(f"{name}-dynamic", "torchvision_models", name, options, image)
    for name in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"):
        arguments = {"weights_backbone": None}
        for way in ("old", "new"):
            options = {"shape": image, "dynamo": way == "new", "arguments": arguments}
            yield Entry(f"{name}-{way}", "torchvision_models", f"segmentation.{name}", options)
    small = {"min_size": 224, "max_size": 320}
    for name, model, arguments in (
        ("ssdlite320-old", "ssdlite320_mobilenet_v3_large", {}),
        ("retinanet-old", "retinanet_resnet50_fpn", small),
        ("fasterrcnn-old", "fasterrcnn_mobilenet_v3_large_320_fpn", {}),
    ):
        options = {
            "shape": (1, 3, 320, 320), "dynamo": False,
            "arguments": {"weights_backbone": None, **arguments},
        }  # fmt: skip
        yield Entry(name, "torchvision_models", f"detection.{model}", options)


def _ultralytics() -> Iterable[Entry]:
    for name in (
        "yolov5n", "yolov8n", "yolov8n-seg", "yolov8n-pose", "yolov8n-obb", "yolov8n-cls",
        "yolov9t", "yolov10n", "yolo11n", "yolo11n-seg", "yolo12n", "yolo26n", "yolov3-tiny",
    ):  # fmt: skip
        yield Entry(name, "ultralytics_models", name, {"imgsz": 320})
    for name in ("yolov5n", "yolov8n", "yolov8n-seg", "yolo11n"):
        yield Entry(
            f"{name}-dynamic", "ultralytics_models", name, {"imgsz": 320, "dynamic": True},
            (1, 3, 320, 320),
        )  # fmt: skip
    for name in ("yolov8n", "yolo11n"):
        yield Entry(f"{name}-nms", "ultralytics_models", name, {"imgsz": 320, "nms": True})
        yield Entry(f"{name}-half", "ultralytics_models", name, {"imgsz": 320, "as_float16": True})


def _keras() -> Iterable[Entry]:
    for name in (
        "MobileNet", "MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "EfficientNetV2B0",
        "ResNet50", "ResNet50V2", "DenseNet121", "InceptionV3", "ConvNeXtTiny",
    ):  # fmt: skip
        yield Entry(f"keras-{name}", "keras_models", name, {}, (1, 224, 224, 3))


def _timm() -> Iterable[Entry]:
    for name in (
        "tf_efficientnet_lite0", "tf_mobilenetv3_small_minimal_100", "mixnet_s", "ghostnet_100",
        "mobilevit_xxs", "edgenext_xx_small", "repvgg_a0", "hrnet_w18_small", "res2net50_14w_8s",
        "lcnet_050", "fbnetc_100", "levit_128s", "efficientformerv2_s0", "convmixer_768_32",
        "poolformer_s12", "mobileone_s0", "fastvit_t8", "tinynet_e", "semnasnet_075", "dla46_c",
    ):  # fmt: skip
        yield Entry(f"timm-{name}", "timm_models", name, {"shape": (1, 3, 224, 224)})


def _by_hand() -> Iterable[Entry]:
    odd = {"input": (1, 3, 90, 122)}
    yield Entry("unet-dynamic-pads", "torch_by_hand", "unet", {"dynamic": True}, odd)
    yield Entry("unet", "torch_by_hand", "unet")
    yield Entry("same-padding", "torch_by_hand", "same_padding", {"dynamic": True}, odd)
    yield Entry("group-norm", "torch_by_hand", "group_norm")
    yield Entry("crnn", "torch_by_hand", "crnn")
    yield Entry("attention", "torch_by_hand", "attention")
    yield Entry("resizes", "torch_by_hand", "resizes", {"dynamic": True}, odd)
    for name in ("cell", "pyramid"):
        yield Entry(f"scripted-{name}", "torch_by_hand", name, {"scripted": True})


def _recurrent() -> Iterable[Entry]:
    """Networks that feed state back from frame to frame."""
    for model, state in (
        ("gru_cell", {"h": "hn"}),
        ("lstm", {"h": "hn", "c": "cn"}),
        ("conv_gru", {"h": "hn"}),
    ):
        for way in ("old", "new"):
            name = f"{model.replace('_', '-')}-{way}"
            options = {"dynamo": way == "new"}
            yield Entry(name, "torch_recurrent", model, options, state=state)


def _wheels() -> Iterable[Entry]:
    rapid = "rapidocr_onnxruntime/models"
    yield Entry(
        "rapidocr-det", "copies", f"{rapid}/ch_PP-OCRv4_det_infer.onnx",
        input_shapes=(1, 3, 320, 320),
    )  # fmt: skip
    yield Entry(
        "rapidocr-rec", "copies", f"{rapid}/ch_PP-OCRv4_rec_infer.onnx",
        input_shapes=(1, 3, 48, 320),
    )  # fmt: skip
    yield Entry(
        "rapidocr-cls", "copies", f"{rapid}/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        input_shapes=(1, 3, 48, 192),
    )  # fmt: skip
    yield Entry(
        "ddddocr", "copies", "ddddocr/common.onnx", input_shapes=(1, 1, 64, 160)
    )  # fmt: skip
    yield Entry("ddddocr-old", "copies", "ddddocr/common_old.onnx", input_shapes=(1, 1, 64, 160))
    yield Entry("ddddocr-det", "copies", "ddddocr/common_det.onnx")
    yield Entry("magika", "copies", "magika/models/standard_v3_3/model.onnx")
    yield Entry(
        "silero-vad", "copies", "silero_vad/data/silero_vad.onnx",
        input_shapes={"input": (1, 512), "state": (2, 1, 128)}, inputs={"sr": 16000},
        state={"state": "stateN"},
    )  # fmt: skip


def _quantised() -> Iterable[Entry]:
    for base in ("resnet18-old", "mobilenet_v3_small-old", "yolov8n", "squeezenet1_1-old"):
        yield Entry(f"{base}-qdq", "quantised", base, {"form": "QDQ"})
        yield Entry(f"{base}-qdq-per-channel", "quantised", base, {"form": "QDQ", "channels": True})
        yield Entry(f"{base}-qoperator", "quantised", base, {"form": "QOperator"})
    for base in ("crnn", "vit_b_32-old", "swin_t-old"):
        yield Entry(f"{base}-dynamic-int8", "quantised", base, {"form": "dynamic"})


def _stopped() -> Iterable[Entry]:
    """Detectors that stop before the suppression of boxes that overlap."""
    outputs = {
        "yolov8n-nms": ("/model/model.22/Concat_3_output_0",),
        "ssdlite320-old": ("/Softmax_output_0", "/head/regression_head/Concat_12_output_0"),
    }
    for name, tensors in outputs.items():
        yield Entry(f"{name}-stopped", "copies", name, outputs=tensors)


ENTRIES: tuple[Entry, ...] = (
    *_by_hand(),
    *_recurrent(),
    *_wheels(),
    *_torchvision(),
    *_ultralytics(),
    *_keras(),
    *_timm(),
    *_quantised(),
    *_stopped(),
)


def chosen(names: Iterable[str]) -> tuple[Entry, ...]:
    """The entries with these names, all if none is given; raises SystemExit for an unknown one."""
    by_name = {entry.name: entry for entry in ENTRIES}
    wanted = tuple(names)
    for name in wanted:
        if name not in by_name:
            raise SystemExit(f"there is no network {name!r} in the zoo; there are {list(by_name)}")
    return tuple(by_name[name] for name in wanted) or ENTRIES
