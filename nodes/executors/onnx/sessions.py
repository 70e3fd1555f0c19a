"""Configures ONNX Runtime's sessions so that they use little memory, and explains its errors.

The settings, with what was measured:

- All sessions of the process share one arena, so that fifty subnets hold the largest live set of
  any of them and not the sum of all. The arena grows by regions so large that most subnets fit into
  one; untouched pages cost nothing. Regions of just the requested size would stay apart until all
  subnets are closed, and a network of ever longer concatenations (DenseNet) would fill them with
  holes. The arena never frees its first region, which is therefore as small as possible.
- Memory patterns are off. A pattern is one block as large as all activations of a run side by side;
  without it each tensor is taken from the arena, which uses freed memory again.
- Reuse of tensors that is planned at loading is off on the CPU, because such a tensor is kept from
  its first use to its last, whatever lies between. Freed at once instead, a Swin transformer's
  tensors take 15 MB in the arena and not 39, YOLOv8's 6 and not 9, and all of 12 networks were
  computed as fast or up to 4 % faster.
- Each session has its own thread pool, because the threads of a process-wide pool cannot be kept
  from spinning.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nodes.executors.base import EngineFailedError, ExecutorError, LoadOptions, TensorSpec
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers
from nodes.executors.onnx.writing import model_of, node, value_info
from nodes.protocol.messages import OptionOffer

if TYPE_CHECKING:
    import onnxruntime

SPINNING = OptionOffer("allow_spinning", words=("true", "false"))
"""Whether threads may wait for work by spinning."""

INLINE_BYTES = 1024
"""Initialisers below this size stay inside an optimised model, since ONNX Runtime reads shapes from
them when it loads the model."""

_REGION_BYTES = 32 << 20
"""The least address space of the arena's regions. The bookkeeping of a region takes 1/32 of its
address space in memory."""

_FIRST_REGION_BYTES = 16 << 10
"""The size of the region that is never freed: more than the smallest of all models needs."""

_GROW_BY_DOUBLING = 0
_SILENT = 4

_NO_TELEMETRY = "ORT_DISABLE_TELEMETRY"
"""Unless this variable is set while ONNX Runtime 1.31 is imported on Linux, it opens a database in
~/.cache of what to report to its maker, and starts a thread for it."""

_NUMPY_NAMES = {
    "tensor(float16)": "float16",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
}

_arena_lock = threading.Lock()
_arena_made = False


def import_onnxruntime() -> Any:
    """Return the `onnxruntime` module, with its telemetry off.

    Raises ExecutorError naming the wheel to install.
    """
    os.environ[_NO_TELEMETRY] = "1"
    try:
        import onnxruntime  # noqa: PLC0415
    except ImportError as error:
        raise ExecutorError(
            "ONNX Runtime is not installed: `pip install onnxruntime`, on a Jetson the "
            f"onnxruntime-gpu wheel of its JetPack ({error})"
        ) from error
    onnxruntime.set_default_logger_severity(_SILENT)
    if hasattr(onnxruntime, "disable_telemetry_events"):  # for where it was imported before
        onnxruntime.disable_telemetry_events()
    return onnxruntime


def optimising_options(ort: Any, model: Path, weights_name: str) -> onnxruntime.SessionOptions:
    """Return options that make a session write itself, fully optimised, to `model`.

    The weights go to a file next to it called `weights_name`. Where ONNX Runtime can (1.21 and
    later), weights that kernels pack are saved packed, so that these are file-backed as well when
    the model is loaded.
    """
    options = _session_options(ort, threads=1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(model)
    options.enable_cpu_mem_arena = False
    for key, value in (
        ("optimized_model_external_initializers_file_name", weights_name),
        ("optimized_model_external_initializers_min_size_in_bytes", str(INLINE_BYTES)),
        ("save_external_prepacked_constant_initializers", "1"),
        ("use_device_allocator_for_initializers", "1"),
    ):
        options.add_session_config_entry(f"session.{key}", value)
    return options


def light_optimising_options(ort: Any, model: Path, weights_name: str) -> Any:
    """Return options like `optimising_options`, but without the optimisations that copy weights."""
    options = _session_options(ort, threads=1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(model)
    options.enable_cpu_mem_arena = False
    for key, value in (
        ("external_initializers_file_name", weights_name),
        ("external_initializers_min_size_in_bytes", str(INLINE_BYTES)),
    ):
        options.add_session_config_entry(f"session.optimized_model_{key}", value)
    return options


def loading_options(ort: Any, options: LoadOptions, *, optimised: bool) -> Any:
    """Return options for a session that runs, in the shared arena.

    `optimised`: the model was written by `optimising_options`, and is loaded as it is.
    """
    level = ort.GraphOptimizationLevel
    session_options = _session_options(ort, options.threads, spins=allows_spinning(options))
    session_options.graph_optimization_level = (
        level.ORT_DISABLE_ALL if optimised else level.ORT_ENABLE_ALL
    )
    session_options.enable_mem_reuse = not optimised
    _make_shared_arena(ort)
    session_options.add_session_config_entry("session.use_env_allocators", "1")
    return session_options


def can_find_weights(ort: Any) -> bool:
    """Return whether `cpu_session` can take a `content`: from ONNX Runtime 1.21 on."""
    return tuple(int(part) for part in ort.__version__.split(".")[:2]) >= (1, 21)


def cpu_session(
    ort: Any,
    model: Path,
    options: Any,
    content: bytes | None = None,
    weights_in: Path | None = None,
) -> Any:
    """Return a session on the CPU of the file `model`, without optimisers that are wrong for it.

    `content` replaces the file, but not its files of weights, which lie next to it or in the folder
    `weights_in`.
    """
    if content is not None:
        folder = str(weights_in or model.parent)
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, folder)
    return ort.InferenceSession(
        str(model) if content is None else content,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=faulty_optimizers(model),
    )


def plain_options(ort: Any, threads: int = 1, *, is_fused: bool = True) -> Any:
    """Return ONNX Runtime's own settings, with all fusions or none."""
    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = threads
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if is_fused else levels.ORT_DISABLE_ALL
    compute_few_bits_exactly(options)
    return options


def keep_packing_off(options: Any) -> None:
    """Let a session use weights as they are in their file, without packing them."""
    options.add_session_config_entry("session.disable_prepacking", "1")


def allows_spinning(options: LoadOptions) -> bool:
    """Return the value of `SPINNING`; raises ExecutorError if it is neither true nor false."""
    return options.option(SPINNING, "false") == "true"


def compute_few_bits_exactly(options: Any) -> None:
    """Let products with weights of few bits take floats, which ONNX Runtime otherwise rounds to 8
    bits: results were off by 3e-3 of the largest, and depended on how a network is divided."""
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")


def _session_options(ort: Any, threads: int, *, spins: bool = False) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spins else "0")
    compute_few_bits_exactly(options)
    # The file was examined as ONNX and must not be read as another format.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def _make_shared_arena(ort: Any) -> None:
    global _arena_made  # noqa: PLW0603 - the arena belongs to ONNX Runtime's own process-wide state
    with _arena_lock:
        if _arena_made:
            return
        ort.create_and_register_allocator(
            ort.OrtMemoryInfo(
                "Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT
            ),
            ort.OrtArenaCfg(
                {
                    "max_mem": 0,
                    "arena_extend_strategy": _GROW_BY_DOUBLING,
                    "initial_chunk_size_bytes": _FIRST_REGION_BYTES,
                    "initial_growth_chunk_size_bytes": _REGION_BYTES,
                    "max_dead_bytes_per_chunk": -1,
                }
            ),
        )
        _arena_made = True
        _run_smallest_and_shrink(ort)


def _identity(opset: int = 13) -> bytes:
    """Return the smallest of all models, which returns the number that it is given."""
    x, y = value_info("x", "float32", (1,)), value_info("y", "float32", (1,))
    return model_of("g", [node("Identity", ("x",), ("y",))], x, y, opsets={"": opset})


_OFFICIAL = re.compile(r"domain ai\.onnx is till opset (\d+)")


def newest_opset(ort: Any) -> int:
    """Return the newest operator set of ONNX that ONNX Runtime takes; 0 if it does not say.

    It says so of a model that states a newer one than any.
    """
    try:
        ort.InferenceSession(
            _identity(127),
            _session_options(ort, threads=1),
            providers=["CPUExecutionProvider"],
        )
    except Exception as error:  # noqa: BLE001 - its exceptions share no base below Exception
        found = _OFFICIAL.search(str(error))
        return int(found[1]) if found else 0
    return 0


def shrink_arena(ort: Any) -> None:
    """Return the shared arena's unused memory, except its first region, to the heap."""
    if _arena_made:
        _run_smallest_and_shrink(ort)


def _run_smallest_and_shrink(ort: Any) -> None:
    """Run the smallest of all models, because ONNX Runtime shrinks an arena only after a run.

    The first call makes the arena's first region. Shrinking also lets the arena grow by
    `_REGION_BYTES` again: after a failed request for 100 GB it would otherwise map regions of
    16 GB, whose bookkeeping is 500 MB, for the smallest tensor.
    """
    options = _session_options(ort, threads=1)
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.use_env_allocators", "1")
    session = ort.InferenceSession(_identity(), options, providers=["CPUExecutionProvider"])
    run_options = ort.RunOptions()
    run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, {"x": np.zeros(1, np.float32)}, run_options)


def tensor_specs(
    subnet: str, arguments: Any, *, may_vary: bool = False, without_shape: Collection[str] = ()
) -> dict[str, TensorSpec]:
    """Return the dtypes and shapes of a session's inputs or outputs by name, in order.

    A tensor of dynamic shape is one that varies if `may_vary`. ONNX Runtime states the shape of a
    scalar for a tensor of unknown rank, so the file decides: tensors `without_shape` there have
    none. Raises ExecutorError for one that may not vary, or for a type that NumPy does not have.
    """
    specs = {}
    for argument in arguments:
        dtype = _NUMPY_NAMES.get(argument.type)
        if dtype is None:
            raise ExecutorError(
                f'subnet {subnet}: "{argument.name}" is a {argument.type}, which cannot be sent; '
                "convert the model's tensors to float, integer or bool"
            )
        is_static = bool(argument.shape) or argument.name not in without_shape
        if not is_static or not all(isinstance(dim, int) for dim in argument.shape):
            if may_vary:
                specs[argument.name] = TensorSpec(dtype, (), varies=True)
                continue
            raise ExecutorError(
                f'subnet {subnet}: "{argument.name}" has the dynamic shape {argument.shape}; '
                "give the model a static `input_shape`"
            )
        specs[argument.name] = TensorSpec(dtype, tuple(argument.shape))
    return specs


@contextmanager
def engine_errors(ort: Any, subnet: str, doing: str) -> Iterator[None]:
    """Translate what ONNX Runtime raises inside the block into an EngineFailedError.

    `doing` is a verb that completes "cannot … it".
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - its exceptions share no base below Exception
        raise_engine_error(error, ort, subnet, doing)


def raise_engine_error(error: Exception, ort: Any, subnet: str, doing: str) -> NoReturn:
    """Raise an EngineFailedError for what ONNX Runtime raised, and anything else again as it is.

    For code that runs so often that the block of `engine_errors` would count.
    """
    is_engines = type(error).__module__.partition(".")[0] == "onnxruntime"
    if isinstance(error, ExecutorError) or not (
        is_engines or isinstance(error, (RuntimeError, ValueError))
    ):
        raise error
    raise EngineFailedError(
        f"subnet {subnet}: ONNX Runtime {ort.__version__} cannot {doing} it: " + explain(str(error))
    ) from error


_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : (?P<code>[A-Z_]+) : (?P<text>.*)$", re.DOTALL)
_UNKNOWN = re.compile(r"No Op registered for (?P<op>\S+) with domain_version of (?P<version>\d+)")
_UNREGISTERED = re.compile(r"(?P<op>\S+?)\((?P<version>-?\d+)\) is not a registered function/op")
_UNIMPLEMENTED = re.compile(
    r"Could not find an implementation for (?P<op>\S+?)\((?P<version>\d+)\) "
    r"node with name '(?P<node>[^']*)'"
)


def explain(message: str) -> str:
    """Return ONNX Runtime's message as a clause that says what is wrong and what to do."""
    match = _CODE.match(message)
    code, text = (match["code"], match["text"]) if match else ("", message)
    text = " ".join(text.split())
    if found := _UNIMPLEMENTED.search(text):
        return (
            f"it has no kernel for operator {found['op']} (opset {found['version']}, node "
            f'"{found["node"]}") with these types; convert the model to float32 or install a '
            "newer onnxruntime"
        )
    if found := _UNKNOWN.search(text) or _UNREGISTERED.search(text):
        return (
            f"it does not know operator {found['op']} (opset {found['version']}); install a newer "
            "onnxruntime or export the model with an older opset"
        )
    if code == "INVALID_PROTOBUF":
        return "the file is not an ONNX model or is truncated; send the subnet again"
    return text.rstrip(".") or code
