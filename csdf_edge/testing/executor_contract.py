"""The contract of executors, as classes of tests that each engine's own test class inherits.

`EngineContract` is for an engine that can be opened as a plugin is; `ExecutorContract` is its part
that needs an executor only.
"""

from __future__ import annotations

import gc
import re
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

from csdf_edge.testing import executor_models as models
from nodes.core.engines import refused_value
from nodes.executors.base import (
    Engine,
    Executor,
    ExecutorError,
    LoadedSubnet,
    LoadOptions,
    LoadsBesideRuns,
    TensorSpec,
    binder,
)
from nodes.protocol.payload import Array

OPTIONS = LoadOptions()
RELATIVE_ERROR = 1e-4


def load(executor: Executor, proto: onnx.ModelProto, folder: Path) -> LoadedSubnet:
    """Write the model to a folder, and load it."""
    return executor.load(models.save(proto, folder), OPTIONS)


def some_inputs(subnet: LoadedSubnet, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random inputs of the dtypes and shapes that the subnet takes."""
    generator = np.random.default_rng(seed)
    found = {}
    for name, spec in subnet.inputs.items():
        values = generator.standard_normal(spec.shape) * 4
        if np.dtype(spec.dtype).kind == "u":  # what a negative number becomes depends on the CPU
            values = np.abs(values)
        found[name] = values.astype(spec.dtype)
    return found


def largest_error(measured: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error, relative to the largest magnitude expected."""
    scale = np.abs(expected.astype(np.float64)).max() or 1.0
    return float(np.abs(measured.astype(np.float64) - expected).max() / scale)


def held_bytes(field: str) -> int:
    """Return this process's memory by the kernel's count: `VmRSS` or `RssAnon`."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


class ExecutorContract:
    """The contract of `Executor` and `LoadedSubnet` (`nodes.executors.base`).

    Inherit it, and define the fixture `executor`.
    """

    prepares: ClassVar[bool] = True
    """Whether `load` needs a child process for what `prepare` has not done."""

    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float16", "int32", "int64", "uint8", "bool")

    options: ClassVar[LoadOptions] = OPTIONS
    """How subnets are loaded whose results are compared with ONNX's evaluator."""

    relative_error: ClassVar[float] = RELATIVE_ERROR
    """The largest error of these, relative to the largest magnitude of an output."""

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[Executor]:
        """Yield the executor to test."""
        raise NotImplementedError

    # -------------------------------------------------------------------------- results

    @pytest.mark.parametrize(
        "proto",
        [models.residual(), models.classifier(), models.two_in_two_out(), models.mean_of_all(),
         models.passes_through()],
        ids=lambda proto: proto.graph.name,
    )  # fmt: skip
    def test_computes_what_onnx_says(
        self, executor: Executor, tmp_path: Path, proto: onnx.ModelProto
    ) -> None:
        subnet = executor.load(models.save(proto, tmp_path), self.options)
        inputs = some_inputs(subnet)
        outputs, expected = subnet.run(inputs), models.evaluate(proto, inputs)
        assert list(outputs) == list(expected)
        for name, array in outputs.items():
            assert array.shape == expected[name].shape
            assert array.dtype == expected[name].dtype
            assert array.flags.c_contiguous
            assert largest_error(array, expected[name]) <= self.relative_error

    def test_carries_every_dtype(self, executor: Executor, tmp_path: Path) -> None:
        graphs = {d: models.save(models.transpose(d), tmp_path / d) for d in self.dtypes}
        executor.prepare(list(graphs.values()), OPTIONS)
        for dtype, graph in graphs.items():
            subnet = executor.load(graph, OPTIONS)
            assert subnet.inputs == {"x": TensorSpec(dtype, (3, 5))}
            inputs = some_inputs(subnet)
            np.testing.assert_array_equal(subnet.run(inputs)["y"], inputs["x"].T)

    def test_inputs_and_outputs_are_in_the_models_order(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        subnet = load(executor, models.two_in_two_out(), tmp_path)
        pair = TensorSpec("float32", (2, 3))
        assert list(subnet.inputs.items()) == [("a", pair), ("b", pair)]
        assert list(subnet.outputs.items()) == [("sum", pair), ("difference", pair)]

    def test_describes_itself(self, executor: Executor) -> None:
        assert any(character.isdigit() for character in executor.describe())

    # -------------------------------------------------------------------------- inputs

    def test_takes_any_memory_layout(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.residual(), tmp_path)
        x = some_inputs(subnet)["x"]
        expected = subnet.run({"x": x})["y"]
        strided = np.repeat(x, 2, axis=3)[..., ::2]
        transposed = np.asfortranarray(x)
        unaligned = np.frombuffer(b"\0" + x.tobytes(), np.float32, offset=1).reshape(x.shape)
        constant = x.copy()
        constant.flags.writeable = False
        assert not strided.flags.c_contiguous
        assert not unaligned.flags.aligned
        for same in (strided, transposed, unaligned, constant):
            np.testing.assert_array_equal(subnet.run({"x": same})["y"], expected)

    def test_leaves_inputs_alone_and_does_not_keep_them(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        subnet = load(executor, models.residual(), tmp_path)
        inputs = some_inputs(subnet)
        before = inputs["x"].copy()
        subnet.run(inputs)
        np.testing.assert_array_equal(inputs["x"], before)
        alive = weakref.ref(inputs["x"])
        del inputs
        gc.collect()
        assert alive() is None

    def test_a_wrong_input_is_named(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.two_in_two_out(), tmp_path)
        a = np.zeros((2, 3), np.float32)
        wrong: tuple[tuple[dict[str, Array], str], ...] = (
            ({"a": a}, r'subnet pair: its input "b" is missing'),
            ({"a": a, "b": a, "c": a}, r'subnet pair has no input "c"; it takes "a", "b"'),
            ({"a": a, "b": a.T}, r'"b" must be float32\[2, 3\], not float32\[3, 2\]'),
            ({"a": a, "b": a[0]}, r'"b" must be float32\[2, 3\], not float32\[3\]'),
            ({"a": a.astype(np.float64), "b": a}, r'"a" must be float32\[2, 3\], not float64'),
            ({"a": a.astype(">f4"), "b": a}, r'"a" must be float32\[2, 3\], not >f4'),
        )
        for inputs, says in wrong:
            with pytest.raises(ExecutorError, match=says):
                subnet.run(inputs)
        assert set(subnet.run({"a": a, "b": a})) == {"sum", "difference"}, "it still works"

    def test_inputs_are_bound_ahead(self, executor: Executor, tmp_path: Path) -> None:
        """Whether the subnet can (`BindsAhead`) or keeps them for `run`."""
        subnet = load(executor, models.two_in_two_out(), tmp_path)
        a, b = (some_inputs(subnet, seed)["a"] for seed in (1, 2))
        expected = subnet.run({"a": a, "b": b})["difference"]
        bind = binder(subnet)
        first, second, third = bind({"a": a}), bind({"a": b, "b": a}), bind({})
        inputs = [({"b": b}, first), ({}, second), ({"b": a, "a": b}, third)]
        found = [bound.run(rest)["difference"] for rest, bound in inputs]
        for made, wanted in zip(found, (expected, -expected, -expected), strict=True):
            np.testing.assert_array_equal(made, wanted)

    def test_a_wrong_input_bound_ahead_is_named(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.two_in_two_out(), tmp_path)
        a = np.zeros((2, 3), np.float32)
        wrong: tuple[tuple[dict[str, Array], dict[str, Array], str], ...] = (
            ({"a": a}, {}, r'subnet pair: its input "b" is missing'),
            ({"a": a, "b": a}, {"c": a}, r'subnet pair has no input "c"; it takes "a", "b"'),
            ({"a": a.T}, {"b": a}, r'"a" must be float32\[2, 3\], not float32\[3, 2\]'),
            ({"a": a}, {"b": a.T}, r'"b" must be float32\[2, 3\], not float32\[3, 2\]'),
        )
        for inputs, rest, says in wrong:
            with pytest.raises(ExecutorError, match=says):
                binder(subnet)(inputs).run(rest)
        assert set(subnet.run({"a": a, "b": a})) == {"sum", "difference"}, "it still works"

    def test_a_run_bound_before_its_subnet_was_closed_says_so(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        subnet = load(executor, models.two_in_two_out(), tmp_path)
        bound = binder(subnet)(some_inputs(subnet))
        subnet.close()
        with pytest.raises(ExecutorError, match="pair"):
            bound.run({})

    # -------------------------------------------------------------------------- outputs

    def test_outputs_belong_to_the_caller(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.residual(), tmp_path)
        kept = [subnet.run(some_inputs(subnet, seed))["y"] for seed in range(4)]
        copies = [array.copy() for array in kept]
        for seed in range(4, 8):
            subnet.run(some_inputs(subnet, seed))
        subnet.close()
        for array, copy in zip(kept, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            array[...] = 0

    def test_outputs_share_no_memory_with_inputs_or_one_another(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        subnet = load(executor, models.passes_through(), tmp_path)
        inputs = some_inputs(subnet)
        outputs = subnet.run(inputs)
        assert not np.shares_memory(outputs["same"], inputs["x"])
        assert not np.shares_memory(outputs["same"], outputs["constant"])

    # -------------------------------------------------------------------------- loading

    def test_prepare_reports_each_graph_in_order(self, executor: Executor, tmp_path: Path) -> None:
        graphs = [models.save(models.residual(seed=n), tmp_path / str(n)) for n in range(3)]
        done: list[Path] = []
        executor.prepare([graphs[1]], OPTIONS)
        executor.prepare([*graphs, graphs[0]], OPTIONS, done.append)
        assert done == [*graphs, graphs[0]]
        inputs = {"x": models.normal(7, 1, 16, 12, 12)}
        for seed, graph in enumerate(graphs):
            expected = models.evaluate(models.residual(seed=seed), inputs)["y"]
            measured = executor.load(graph, OPTIONS).run(inputs)["y"]
            assert largest_error(measured, expected) <= RELATIVE_ERROR

    def test_a_broken_file_is_named(self, executor: Executor, tmp_path: Path) -> None:
        whole = models.save(models.residual(), tmp_path / "whole")
        weightless = models.save(models.residual(), tmp_path / "weightless")
        next(path for path in weightless.parent.iterdir() if path != weightless).unlink()
        broken = {
            "missing": None, "empty": b"", "text": b"not a model" * 9,
            "truncated": whole.read_bytes()[:-40],
        }  # fmt: skip
        for name, content in broken.items():
            path = tmp_path / name
            if content is not None:
                path.write_bytes(content)
            for use in (executor.load, lambda graph, options: executor.prepare([graph], options)):
                with pytest.raises(ExecutorError, match=str(path)):
                    use(path, OPTIONS)
        with pytest.raises(ExecutorError, match=r"weights of .* are missing"):
            executor.load(weightless, OPTIONS)

    def test_truncated_weights_are_named(self, executor: Executor, tmp_path: Path) -> None:
        graph = models.save(models.residual(), tmp_path)
        weights = next(path for path in tmp_path.iterdir() if path != graph and path.is_file())
        weights.write_bytes(weights.read_bytes()[:100])
        with pytest.raises(ExecutorError, match="residual0"):
            executor.load(graph, OPTIONS)

    def test_weights_outside_the_directory_are_refused(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        graph = models.save(models.residual(), tmp_path / "inside")
        proto = onnx.load(graph, load_external_data=False)
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    (tmp_path / entry.value).write_bytes((graph.parent / entry.value).read_bytes())
                    entry.value = f"../{entry.value}"
        graph.write_bytes(proto.SerializeToString())
        with pytest.raises(ExecutorError, match="outside its own directory"):
            executor.load(graph, OPTIONS)

    def test_an_unknown_operator_is_named(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(ExecutorError, match=r"subnet strange: .*Frobnicate"):
            load(executor, models.unknown_operator(), tmp_path)

    def test_no_library_of_custom_operators_is_looked_for(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        proto = models.unknown_operator()
        proto.graph.node[0].domain = "org.example"
        proto.opset_import.add(domain="org.example", version=1)
        with pytest.raises(ExecutorError, match=r"subnet strange .*\(Frobnicate\) of the domain"):
            load(executor, proto, tmp_path)

    def test_a_dynamic_shape_is_refused(self, executor: Executor, tmp_path: Path) -> None:
        with pytest.raises(ExecutorError, match=r"subnet dynamic: .*dynamic shape.*input_shape"):
            load(executor, models.dynamic_shape(), tmp_path)

    # -------------------------------------------------------------------------- life and memory

    def test_a_closed_subnet_says_so(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.residual(), tmp_path)
        inputs = some_inputs(subnet)
        subnet.close()
        subnet.close()
        with pytest.raises(ExecutorError, match="subnet residual0 is closed"):
            subnet.run(inputs)
        assert list(subnet.inputs) == ["x"]
        assert list(subnet.outputs) == ["y"]

    def test_nothing_is_prepared_between_interrupt_and_resume(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        if not self.prepares:
            pytest.skip("this engine prepares nothing")
        graph = models.save(models.residual(), tmp_path)
        executor.interrupt()
        executor.interrupt()
        with pytest.raises(ExecutorError):
            executor.prepare([graph], OPTIONS)
        with pytest.raises(ExecutorError):
            executor.load(graph, OPTIONS)
        executor.resume()
        subnet = executor.load(graph, OPTIONS)
        assert set(subnet.run(some_inputs(subnet))) == {"y"}

    def test_a_closed_executor_prepares_nothing_and_its_subnets_run(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        if not self.prepares:
            pytest.skip("this engine prepares nothing")
        subnet = load(executor, models.residual(), tmp_path / "loaded")
        executor.close()
        executor.close()
        executor.resume()
        with pytest.raises(ExecutorError):
            executor.prepare([models.save(models.residual(seed=1), tmp_path / "new")], OPTIONS)
        assert set(subnet.run(some_inputs(subnet))) == {"y"}

    def test_two_subnets_run_at_once(self, executor: Executor, tmp_path: Path) -> None:
        protos = [models.residual(seed=n) for n in range(2)]
        subnets = [load(executor, p, tmp_path / str(n)) for n, p in enumerate(protos)]
        inputs = some_inputs(subnets[0])
        expected = [subnet.run(inputs)["y"] for subnet in subnets]
        assert not np.array_equal(expected[0], expected[1])
        with ThreadPoolExecutor(2) as threads:
            repeated = threads.map(lambda n: subnets[n % 2].run(inputs)["y"], (0, 1))
            for measured, first in zip(repeated, expected, strict=True):
                np.testing.assert_array_equal(measured, first)

    def test_one_thread_loads_a_subnet_while_another_runs_one(
        self, executor: Executor, tmp_path: Path
    ) -> None:
        if not isinstance(executor, LoadsBesideRuns):
            pytest.skip("this engine loads subnets in one thread only")
        subnet = load(executor, models.residual(), tmp_path / "0")
        inputs = some_inputs(subnet)
        expected = subnet.run(inputs)["y"]
        with ThreadPoolExecutor(1) as threads:
            loading = threads.submit(load, executor, models.residual(seed=1), tmp_path / "1")
            while not loading.done():
                np.testing.assert_array_equal(subnet.run(inputs)["y"], expected)
            other = loading.result()
            first = threads.submit(other.run, inputs).result()["y"]
        subnet.close()
        np.testing.assert_array_equal(other.run(inputs)["y"], first)
        other.close()

    def test_a_hundred_runs_do_not_leak(self, executor: Executor, tmp_path: Path) -> None:
        subnet = load(executor, models.residual(channels=32, size=48), tmp_path)
        inputs = some_inputs(subnet)
        for _ in range(50):  # until the heap has what one run after the other needs
            subnet.run(inputs)
        before = held_bytes("RssAnon")
        for _ in range(100):
            outputs = subnet.run(inputs)
        assert held_bytes("RssAnon") - before < 20 * outputs["y"].nbytes


class EngineContract(ExecutorContract):
    """The contract of `Engine`, and that of the executor that it opens on one device.

    Inherit it, and define `engine`.
    """

    device: ClassVar[str] = ""
    """The device to compute on; by default the engine's first."""

    wrong_options: ClassVar[Mapping[str, str]] = {}
    """For each of the engine's own settings a value that it cannot have."""

    @abstractmethod
    def engine(self) -> Engine:
        """Return the engine."""

    @pytest.fixture
    def executor(self, tmp_path: Path) -> Iterator[Executor]:
        """Yield the engine's executor; skip the test where the engine is not installed."""
        executor = self._opened(tmp_path / "derived")
        yield executor
        executor.close()

    def _opened(self, cache: Path) -> Executor:
        engine = self.engine()
        if (missing := engine.missing()) is not None:
            pytest.skip(missing)
        devices = [offer.device for offer in engine.devices()]
        if self.device not in ("", *devices):
            pytest.skip(f"it has no device {self.device}")
        return engine.open(cache, self.device or devices[0], None)

    def test_says_what_is_missing_or_which_devices_and_precisions_it_has(self) -> None:
        engine = self.engine()
        if (missing := engine.missing()) is not None:
            assert "install" in missing or "GPU" in missing
            return
        devices = engine.devices()
        assert devices
        for offer in devices:
            assert re.fullmatch(r"[a-z][a-z0-9_-]*(:[1-9]\d*)?", offer.device)
            assert offer.precisions
        assert len({offer.device for offer in devices}) == len(devices)

    def test_a_setting_of_its_own_is_checked(self, executor: Executor, tmp_path: Path) -> None:
        settings = {option.name: option for option in self.engine().options}
        assert set(self.wrong_options) == set(settings)
        for name, value in self.wrong_options.items():
            assert refused_value(settings[name], value), f"{name} does not say what it may be"
        graph = models.save(models.residual(), tmp_path)
        for name, value in self.wrong_options.items():
            options = LoadOptions(engine_options={name: value})
            for use in (executor.load, lambda graph, options: executor.prepare([graph], options)):
                with pytest.raises(ExecutorError, match=name):
                    use(graph, options)

    def test_a_damaged_cache_is_made_again(self, executor: Executor, tmp_path: Path) -> None:
        graph = models.save(models.residual(), tmp_path / "model")
        subnet = executor.load(graph, self.options)
        inputs = some_inputs(subnet)
        expected = subnet.run(inputs)["y"]
        subnet.close()
        executor.close()
        for path in [path for path in (tmp_path / "derived").rglob("*") if path.is_file()]:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        again = self._opened(tmp_path / "derived")
        measured = again.load(graph, self.options).run(inputs)["y"]
        again.close()
        assert largest_error(measured, expected) <= self.relative_error
