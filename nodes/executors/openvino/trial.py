"""Compiles a subnet with OpenVINO and runs it once, in the child process that prepares subnets.

An engine that crashes takes its process with it. So a subnet is tried out in a child before an
agent compiles it (`nodes.executors.openvino.executor`); an empty entry in the cache says that it
passed.
"""

from __future__ import annotations

from functools import cache

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.openvino.compiler import Compiler
from nodes.executors.openvino.subnet import OpenVinoSubnet, Siblings
from nodes.executors.preparing.entries import Job, PreparedFiles

_compiler = cache(Compiler)
"""One for all subnets of this process."""


def try_out(job: Job, options: LoadOptions, entries: PreparedFiles) -> None:
    """Compile the subnet, run it once on synthetic inputs, and note that in `entries`.

    Raises ExecutorError if OpenVINO cannot. A network that needs a particular whole number as input
    refuses the synthetic zeros, and does not pass either: the layers after the refusing one did not
    run.
    """
    with entries.making(job.key):
        subnet = OpenVinoSubnet(_compiler(), job.subnet, job.graph, options, Siblings())
        try:
            subnet.try_out()
        except ExecutorError as error:
            zeros = [name for name, spec in subnet.inputs.items() if "int" in spec.dtype]
            if not zeros:
                raise
            raise ExecutorError(
                f"{error}; this was a trial with 0 for {', '.join(zeros)}: if the network needs "
                "another value there, set it under `model: inputs:`"
            ) from error
