"""Searches for faster loops of a subnet's kernels within a time budget.

MetaSchedule (Shao et al., NeurIPS 2022) describes the schedules that a kernel can have, and draws
one at random from them. Each is compiled and timed on this machine, and the fastest is kept if it
beats the plain loops. The next kernel is the one that takes most of the run, per schedule tried.

This is random search. In the wheel of TVM 0.27.0.post1 for x86-64 with Python 3.11 (apache-tvm-ffi
0.1.15.post2), two of the mutators of MetaSchedule's own search crash when they are initialised, and
its task schedulers crash even without mutators. The cause is not known.
"""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any

import numpy as np

_INTRINSICS = "tvm.s_tir.tensor_intrin"

_REPEATS, _LEAST_TIMED_S = 3, 1e-3
"""A kernel's time is the least of `_REPEATS` repetitions, each of `_LEAST_TIMED_S` or more."""


class _Kernel:
    """A kernel with its best time so far, in seconds."""

    def __init__(self, task: Any, target: Any, database: Any, seed: int) -> None:
        import tvm  # noqa: PLC0415
        from tvm.s_tir import meta_schedule as ms  # noqa: PLC0415

        self._target = target
        self._database = database
        self._module = task.dispatched[0]
        self._context = ms.TuneContext(
            mod=self._module,
            target=target,
            task_name=task.task_name,
            num_threads=1,
            rand_state=seed,
            space_generator=ms.space_generator.PostOrderApply(
                sch_rules="llvm", postprocs="llvm", mutator_probs={}
            ),
        )
        self._arguments = ms.arg_info.ArgInfo.from_entry_func(self._module, False)
        self._inputs = [
            tvm.runtime.tensor(np.ones([int(each) for each in one.shape], str(one.dtype)))
            for one in self._arguments
        ]
        self._weight = int(task.weight)
        self._tried = 1
        self._best_s = self._time(self._module)

    @property
    def promise_s(self) -> float:
        """The seconds of a run that this kernel takes, per schedule that was tried."""
        return self._weight * self._best_s / self._tried

    def try_schedules(self, deadline: float) -> None:
        """Time one schedule of each shape that the kernel's loops can have."""
        from tvm.s_tir import meta_schedule as ms  # noqa: PLC0415

        for schedule in self._context.generate_design_space():
            if time.monotonic() >= deadline:
                return
            self._tried += 1
            schedule.enter_postproc()
            if not all(each.apply(schedule) for each in self._context.space_generator.postprocs):
                continue
            taken_s = self._time(schedule.mod)
            if taken_s < self._best_s:
                self._best_s = taken_s
                workload = self._database.commit_workload(self._module)
                self._database.commit_tuning_record(
                    ms.database.TuningRecord(
                        schedule.trace, workload, [taken_s], self._target, self._arguments
                    )
                )

    def _time(self, module: Any) -> float:
        import tvm  # noqa: PLC0415

        kernel = tvm.compile(module, target=self._target)["main"]
        kernel(*self._inputs)
        least_s = np.inf
        for _ in range(_REPEATS):
            begin, calls = time.perf_counter(), 0
            while (taken_s := time.perf_counter() - begin) < _LEAST_TIMED_S or not calls:
                kernel(*self._inputs)
                calls += 1
            least_s = min(least_s, taken_s / calls)
        return float(least_s)


def tune(module: Any, target: Any, budget_s: float) -> Any:
    """Return `module` with the best schedules found in about `budget_s` seconds.

    A kernel for which none was found keeps its plain loops. The compilation and the runs of a
    kernel that are under way when the time is up are finished.
    """
    deadline = time.monotonic() + budget_s
    # Importing the intrinsics took 75 s on two busy CPUs; the rules for `llvm` use none.
    intrinsics = sys.modules.setdefault(_INTRINSICS, ModuleType(_INTRINSICS))
    import tvm  # noqa: PLC0415
    from tvm.relax import transform  # noqa: PLC0415
    from tvm.s_tir import meta_schedule as ms  # noqa: PLC0415

    tvm.s_tir.tensor_intrin = intrinsics
    database = ms.database.MemoryDatabase()
    kernels: list[_Kernel] = []
    for seed, task in enumerate(ms.relax_integration.extract_tasks(module, target), start=1):
        if time.monotonic() >= deadline:
            break
        kernels.append(_Kernel(task, target, database, seed))
    while kernels and time.monotonic() < deadline:
        max(kernels, key=lambda kernel: kernel.promise_s).try_schedules(deadline)
    with database:
        return transform.MetaScheduleApplyDatabase()(module)
