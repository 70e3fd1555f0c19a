"""Compiles a subnet with TVM into a shared library, for this CPU or for another one.

This runs in the child process that prepares subnets. TVM's ONNX frontend translates the subnet into
Relax, whose passes fuse layers into kernels; LLVM compiles these. A linker is needed to make a
library of them: the machine's C compiler, or `zig cc` of the package `ziglang`, which links for
other processors too.

Without tuning, kernels are plain loops, and slow ones. Tuning (`nodes.executors.tvm.tune`) searches
for better loops.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.tvm.compiled import LIBRARY, WEIGHTS, CompiledTensors, lay_out, tuning_s
from nodes.executors.tvm.runtime import load_runtime, run_once
from nodes.executors.tvm.tune import tune
from nodes.host.process import python_command
from nodes.protocol.payload import Array

_LEAST_LIFTED_BYTES = 1024
"""Constants below this size stay inside the library."""

_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """The target of compiled kernels: LLVM's triple and its name of the CPU."""

    triple: str
    cpu: str = "generic"

    @property
    def architecture(self) -> str:
        """The first part of the triple, such as `aarch64`."""
        return self.triple.partition("-")[0]

    @property
    def is_here(self) -> bool:
        """Whether the result can run on this machine."""
        return self.architecture == platform.machine()


def build(job: Job, options: LoadOptions, cache: PreparedFiles) -> None:
    """Compile one subnet for this CPU, run it once, and store it in `cache` under the job's key.

    Raises ExecutorError naming the layer or operator if TVM cannot.
    """
    with _output_to_stderr():
        from tvm.target import codegen  # noqa: PLC0415 - one engine per child

        here = CompileTarget(f"{platform.machine()}-linux-gnu", str(codegen.llvm_get_system_cpu()))
        with cache.making(job.key) as folder:
            compile_for(here, job, options, folder)


def compile_for(machine: CompileTarget, job: Job, options: LoadOptions, folder: Path) -> None:
    """Compile one subnet into `folder`, and run it once if it is for this machine.

    Only code for this machine can be tuned. Raises ExecutorError naming the layer or operator if
    TVM cannot compile it, and if no linker for that machine is found.
    """
    linker = find_linker(machine)
    with _scratch(folder) as scratch:
        try:
            _compile(machine, linker, job, options, folder, scratch)
        except ExecutorError:
            raise
        except Exception as error:
            raise ExecutorError(
                f"subnet {job.subnet}: TVM {_version()} cannot compile it: {_first_line(error)}; "
                "use another engine on this node"
            ) from error
    if machine.is_here:
        load_runtime()
        run_once(job.subnet, folder, options)


def _compile(
    machine: CompileTarget,
    linker: Sequence[str],
    job: Job,
    options: LoadOptions,
    folder: Path,
    scratch: Path,
) -> None:
    import tvm  # noqa: PLC0415
    from tvm import relax  # noqa: PLC0415
    from tvm.relax.backend.cpu_generic import pipeline  # noqa: PLC0415

    target = tvm.target.Target(
        {
            "kind": "llvm",
            "mtriple": machine.triple,
            "mcpu": machine.cpu,
            "num-cores": options.threads,
        }
    )
    module, inputs, outputs = _read(job)
    transform = relax.transform
    with target:
        module = tvm.transform.Sequential(
            [
                transform.DecomposeOpsForInference(),
                transform.CanonicalizeBindings(),
                *pipeline.library_dispatch_passes(target),
                *pipeline.legalize_passes(target),
            ]
        )(module)
        if (budget_s := tuning_s(options)) and machine.is_here:
            module = tune(module, target, budget_s)
        module, constants = _lifted(module)
        lower = tvm.transform.Sequential(
            [*pipeline.dataflow_lower_passes(target), *pipeline.finalize_passes(target)]
        )
        executable = tvm.compile(module, target=target, relax_pipeline=lower)
    executable.export_library(
        str(folder / LIBRARY),
        fcompile=lambda output, objects, **_: _link(linker, output, objects),
        workspace_dir=str(scratch),
    )
    tensors = CompiledTensors(inputs, outputs, lay_out(constants))
    with (folder / WEIGHTS).open("wb") as file:
        for weight, array in zip(tensors.weights, constants, strict=True):
            file.seek(weight.offset_bytes)
            file.write(array.tobytes())
    tensors.write(folder)


def _read(job: Job) -> tuple[Any, dict[str, TensorSpec], dict[str, TensorSpec]]:
    """Return the subnet as a Relax module, and its inputs and outputs."""
    import onnx  # noqa: PLC0415 - TVM's frontend reads the messages of this package
    from tvm import relax  # noqa: PLC0415
    from tvm.relax.frontend.onnx import from_onnx  # noqa: PLC0415

    model = onnx.load(job.graph)
    weights = {tensor.name for tensor in model.graph.initializer}
    given = [value for value in model.graph.input if value.name not in weights]
    for value in given:
        dimensions = [_dimension(each) for each in value.type.tensor_type.shape.dim]
        if not all(isinstance(each, int) for each in dimensions):
            raise ExecutorError(
                f'subnet {job.subnet}: "{value.name}" has the dynamic shape {dimensions}; '
                "give the model a static `input_shape`"
            )
    try:
        module = from_onnx(model, keep_params_in_input=False)
    except Exception as error:
        raise ExecutorError(
            f"subnet {job.subnet}: TVM {_version()} cannot compile it: {_first_line(error)}"
            f"{_layers_of(model, str(error))}; use another engine on this node"
        ) from error
    main = module["main"]
    inputs = {
        value.name: _spec(job.subnet, value.name, parameter.ty)
        for value, parameter in zip(given, main.params, strict=True)
    }
    result = main.ret_ty
    types = result.fields if isinstance(result, relax.TupleType) else [result]
    names = [value.name for value in model.graph.output]
    outputs = {name: _spec(job.subnet, name, each) for name, each in zip(names, types, strict=True)}
    return module, inputs, outputs


def _dimension(dimension: Any) -> int | str:
    return dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or "?"


def _layers_of(model: Any, reason: str) -> str:
    """Return which layers have an operator that the reason names, as a clause."""
    words = set(reason.replace(",", " ").replace(":", " ").split())
    for node in model.graph.node:
        if node.op_type in words:
            return f" (layer {node.name or node.output[0]!r} is {node.op_type})"
    return ""


def _spec(subnet: str, name: str, type_: Any) -> TensorSpec:
    try:
        shape = tuple(int(each) for each in type_.shape.values)
        dtype = np.dtype(str(type_.dtype)).name
    except (TypeError, ValueError, AttributeError) as error:
        raise ExecutorError(
            f'subnet {subnet}: TVM does not know the dtype and shape of "{name}" before it runs; '
            "use another engine on the node that has this layer"
        ) from error
    return TensorSpec(dtype, shape)


def _lifted(module: Any) -> tuple[Any, list[Array]]:
    """Return the module with its large constants as further parameters of `main`, and these."""
    from tvm import relax  # noqa: PLC0415
    from tvm.relax.expr_functor import PyExprMutator, mutator  # noqa: PLC0415

    variables: list[Any] = []
    constants: list[Array] = []

    @mutator
    class Lift(PyExprMutator):  # type: ignore[misc]
        def visit_generic_const_(self, op: Any) -> Any:
            array = op.value.numpy() if hasattr(op.value, "numpy") else None
            if array is None or array.nbytes < _LEAST_LIFTED_BYTES:
                return op
            variable = relax.Var(
                f"weight{len(variables)}", relax.TensorType(array.shape, str(array.dtype))
            )
            variables.append(variable)
            constants.append(array)
            return variable

    main = module["main"]
    body = Lift(module).visit_expr(main.body)
    lifted = relax.Function(
        [*main.params, *variables], body, main.ret_ty, is_pure=main.is_pure, attrs=main.attrs
    )
    module.update_func(module.get_global_var("main"), lifted)
    return module, constants


def find_linker(machine: CompileTarget) -> tuple[str, ...]:
    """Return the command that links libraries for a machine; raises ExecutorError without one."""
    names = (f"{machine.architecture}-linux-gnu-gcc", *(_COMPILERS if machine.is_here else ()))
    for name in names:
        if (found := shutil.which(name)) is not None:
            return (found,)
    if find_spec("ziglang") is not None:
        target = f"{machine.architecture}-linux-gnu"
        return tuple(python_command("ziglang", "cc", "-target", target))
    raise ExecutorError(
        f"TVM needs a linker for {machine.architecture}, and none was found: install gcc "
        f"({names[0]} for another machine), or `pip install ziglang`"
    )


def _link(linker: Sequence[str], output: str, objects: Sequence[str]) -> None:
    done = subprocess.run(
        [*linker, "-shared", "-fPIC", "-o", output, *objects, "-lm"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or "no reason given"
        raise ExecutorError(f"TVM cannot link with {linker[0]}: {reason}")


def _version() -> str:
    import tvm  # noqa: PLC0415

    return str(tvm.__version__)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Let compilers, linkers and the tuner write their temporary files under `folder`.

    This process may write nowhere else.
    """
    names = ("TMPDIR", "ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    former = {name: os.environ.get(name) for name in names}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        os.environ.update(dict.fromkeys(names, scratch))
        tempfile.tempdir = scratch
        try:
            yield Path(scratch)
        finally:
            tempfile.tempdir = None
            for name, value in former.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    """Send to stderr what TVM prints, since the agent reads replies from this process's stdout."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)
