"""Which engine a node opens, what it offers, and the error if there is none."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from pathlib import Path

import onnxruntime
import pytest

from nodes.executors import registry
from nodes.executors.base import ExecutorError
from nodes.executors.engines import Engines
from nodes.executors.onnx import engine as onnx_engine
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.openvino import engine as openvino_engine
from nodes.executors.registry import find_engine, offers, open_executor
from nodes.executors.tensor_rt import engine as tensor_rt_engine
from nodes.executors.tvm import engine as tvm_engine
from nodes.protocol.messages import (
    DeviceOffer,
    EngineChoice,
    EngineMemory,
    EngineOffer,
    OptionOffer,
)

BEADS = OptionOffer("beads", least=1, is_whole=True)
OPTIONS = 'options = (OptionOffer("beads", least=1, is_whole=True),)'

PLUGIN = """
from csdf_edge.executors import DeviceOffer, OptionOffer

class Abacus:
    options = (OptionOffer("beads", least=1, is_whole=True),)
    def missing(self):
        return None
    def devices(self):
        return (DeviceOffer("cpu", ("fp32", "int8")), DeviceOffer("npu"))
    def open(self, cache, device, room):
        return ("an abacus", device)
"""


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch):
    """Makes packages look as if they were not installed."""
    real_spec, real_import = importlib.util.find_spec, builtins.__import__

    def hide(*names: str) -> None:
        def import_(name: str, *rest, **options):
            if name.partition(".")[0] in names:
                raise ImportError(f"No module named {name!r}")
            return real_import(name, *rest, **options)

        for module in (onnx_engine, openvino_engine, tensor_rt_engine, tvm_engine):
            monkeypatch.setattr(
                module, "find_spec", lambda name: None if name in names else real_spec(name)
            )
        monkeypatch.setattr(builtins, "__import__", import_)
        for name in names:
            monkeypatch.delitem(sys.modules, name, raising=False)

    return hide


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package of one module with an entry point of our group."""
    site = tmp_path / "site"

    def install(name: str, text: str, value: str) -> None:
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (site / f"{name}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{value}\n")
        registry._plugins.cache_clear()

    monkeypatch.syspath_prepend(str(site))
    yield install
    registry._plugins.cache_clear()


@pytest.mark.parametrize("name", ["auto", "onnxruntime"])
def test_without_tensorrt_it_is_onnx_runtime(name: str, tmp_path: Path, without) -> None:
    without("tensorrt", "tensorrt_rtx")
    executor = open_executor(name, tmp_path, device="cpu")
    assert isinstance(executor, OnnxRuntimeExecutor)
    assert executor.describe().startswith(f"ONNX Runtime {onnxruntime.__version__} (")


def test_without_any_engine_it_says_which_to_install(tmp_path: Path, without) -> None:
    without("tensorrt", "tensorrt_rtx", "onnxruntime", "openvino", "tvm")
    with pytest.raises(ExecutorError, match=r"has no engine: .*install onnxruntime.*Jetson"):
        open_executor("auto", tmp_path)
    with pytest.raises(ExecutorError, match=r"engine onnxruntime: it is not installed: .*pip"):
        open_executor("onnxruntime", tmp_path)


def test_tensorrt_asked_for_and_missing_says_what_to_do(tmp_path: Path, without) -> None:
    without("tensorrt", "tensorrt_rtx")
    if find_engine("tensorrt").missing() is None:
        pytest.skip("ONNX Runtime has it as an execution provider here")
    with pytest.raises(ExecutorError, match=r"cannot use the engine tensorrt: .*pip install tens"):
        open_executor("tensorrt", tmp_path)


@pytest.mark.parametrize(
    ("module", "precisions"), [("tensorrt", ("fp32", "fp16")), ("tensorrt_rtx", ("fp32",))]
)
def test_tensorrt_rtx_offers_no_half_precision(
    module: str, precisions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its networks are strongly typed."""
    there = {module, "cuda", "cuda.bindings"}
    monkeypatch.setattr(tensor_rt_engine, "find_spec", lambda name: name in there or None)
    monkeypatch.setattr(tensor_rt_engine, "cuda_devices", lambda: 1)
    monkeypatch.setattr(tensor_rt_engine, "first_capability", lambda: (8, 6))
    monkeypatch.setattr(tensor_rt_engine, "rtx_refuses", lambda _: None)
    assert offers("tensorrt")[0].devices == (DeviceOffer("gpu", precisions),)


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"'abacus'; the engines are auto, .*onnxruntime"):
        open_executor("abacus", tmp_path)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExecutorError, match=r"has no device 'npu:3' for onnxruntime, only .*cpu"):
        open_executor("onnxruntime", tmp_path, device="npu:3")


def test_a_package_adds_an_engine_by_an_entry_point(plugin, tmp_path: Path) -> None:
    plugin("csdf_abacus", PLUGIN, "abacus = csdf_abacus:Abacus")
    devices = (DeviceOffer("cpu", ("fp32", "int8")), DeviceOffer("npu"))
    assert offers("abacus") == (EngineOffer("abacus", "", devices, (BEADS,)),)
    assert open_executor("abacus", tmp_path, device="npu") == ("an abacus", "npu")
    assert [offer.engine for offer in offers()][-1] == "abacus", "auto prefers the built-in ones"


def test_a_package_declares_what_memory_its_engine_takes(plugin) -> None:
    declaring = "from csdf_edge.executors import EngineMemory\n" + PLUGIN.replace(
        OPTIONS, "options = ()\n    memory = EngineMemory(layer_bytes=9)"
    )
    plugin("csdf_declaring", declaring, "abacus = csdf_declaring:Abacus")
    (offer,) = offers("abacus")
    assert offer.memory == EngineMemory(layer_bytes=9)
    assert offers("onnxruntime")[0].memory == EngineMemory()


def test_a_package_that_declares_no_memory_in_bytes_is_broken(plugin) -> None:
    wrong = PLUGIN.replace(OPTIONS, 'options = ()\n    memory = "little"')
    plugin("csdf_undeclared", wrong, "abacus = csdf_undeclared:Abacus")
    (offer,) = offers("abacus")
    assert "its memory must be an EngineMemory of sizes in bytes, not little" in offer.missing


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nothing_of_that_name", "No module named"),
        ("class Abacus: ...", "missing"),
        (PLUGIN.replace("OptionOffer(", "str(").replace(", least=1, is_whole=True", ""), "OptionO"),
    ],
)
def test_a_broken_plugin_concerns_only_those_who_ask_for_it(
    plugin, tmp_path: Path, text: str, why: str
) -> None:
    name = f"csdf_broken_{len(text)}"
    plugin(name, text, f"broken = {name}:Abacus")
    assert isinstance(open_executor("auto", tmp_path, device="cpu"), OnnxRuntimeExecutor)
    with pytest.raises(ExecutorError, match=f"cannot use the engine broken: .*{why}"):
        open_executor("broken", tmp_path)


def test_a_plugin_cannot_take_the_name_of_a_built_in_engine(plugin, tmp_path: Path) -> None:
    plugin("csdf_false", PLUGIN, "onnxruntime = csdf_false:Abacus")
    assert isinstance(open_executor("onnxruntime", tmp_path, device="cpu"), OnnxRuntimeExecutor)


def test_two_packages_with_an_engine_of_one_name_are_named(plugin, tmp_path: Path) -> None:
    plugin("csdf_one", PLUGIN, "abacus = csdf_one:Abacus")
    plugin("csdf_two", PLUGIN, "abacus = csdf_two:Abacus")
    with pytest.raises(ExecutorError, match="two packages have an engine called 'abacus'"):
        open_executor("abacus", tmp_path)


def test_an_agent_starts_on_a_device_that_has_no_fp32(plugin, tmp_path: Path) -> None:
    only_half = PLUGIN.replace('DeviceOffer("npu")', 'DeviceOffer("npu", ("fp16",))')
    plugin("csdf_half", only_half, "half = csdf_half:Abacus")
    engines = Engines("half", "npu", tmp_path)
    assert engines.executor == ("an abacus", "npu")
    with pytest.raises(ExecutorError, match="does not compute in fp32: half on npu has fp16"):
        engines.executor_for(EngineChoice(device="npu"))


def test_an_agent_on_the_cpu_offers_no_other_device(plugin, tmp_path: Path) -> None:
    plugin("csdf_abacus", PLUGIN, "abacus = csdf_abacus:Abacus")
    engines = Engines("onnxruntime", "cpu", tmp_path)
    assert [offer.engine for offer in engines.offers] == ["onnxruntime"], "the user has chosen one"
    engines = Engines("auto", "cpu", tmp_path)
    assert {device.device for offer in engines.offers for device in offer.devices} == {"cpu"}
    engines = Engines("abacus", "npu", tmp_path)
    assert [device.device for device in engines.offers[0].devices] == ["npu", "cpu"]


def test_an_agent_opens_each_engine_once_when_it_is_asked_for(plugin, tmp_path: Path) -> None:
    plugin("csdf_abacus", PLUGIN, "abacus = csdf_abacus:Abacus")
    engines = Engines("auto", "cpu", tmp_path)
    executor, choice = engines.executor_for(EngineChoice())
    assert executor is engines.executor
    assert (choice.engine, choice.device, choice.precision) == ("onnxruntime", "cpu", "fp32")
    other, choice = engines.executor_for(EngineChoice("abacus", "cpu", "int8"))
    assert other == ("an abacus", "cpu")
    assert engines.executor_for(EngineChoice("abacus"))[0] is other
    with pytest.raises(
        ExecutorError, match="does not compute in fp16: abacus on cpu has fp32, int8"
    ):
        engines.executor_for(EngineChoice("abacus", precision="fp16"))
