"""The smallest memory pools that a build for a microcontroller has to configure for a program.

There the runtime has no malloc but a pool for each method and one for kernels to work in. A run in
pools that are too large shows the most that a method takes of its pool, with the padding between
allocations; the smallest temporary pool for it is searched. Both are verified: runs in
pools of exactly these sizes succeed, and with one byte less they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from etscope.errors import MissingDataError, RuntimeFailure, UsageError
from etscope.formats.bytes.files import PathLike
from etscope.formats.program.pte import Program
from etscope.model.report import Report, Section, rows
from etscope.model.table import Column, Kind
from etscope.run._run import Call, job_calls
from etscope.run._runner_host import NATIVE
from etscope.run.execute import ExecutionOptions, Folder, SharedOptions, chosen_runner, execute
from etscope.run.job import Job, PoolSizes, Result
from etscope.run.process import PoolTooSmall
from etscope.run.program import Opened, open_program
from etscope.support.options import takes_fields
from etscope.support.shown import Shown

__all__ = ["PLANNED", "TEMPORARY", "smallest_pools"]

SCHEMA = "etscope.pools/1"
METHOD, PLANNED, TEMPORARY = "method", "method and planned buffers", "temporary"

# One byte less, and what came of it.
FAILS, WITHOUT, NOTHING = "fails", "a kernel did without", "nothing to take"

_LARGEST = (1 << 32) - 1  # bytes: the runtime's own limit of a pool
_SPARE = 1 << 28  # bytes beyond the plan, of the pools that are measured in
_EXECUTIONS = 2  # state and caches of the first must not ask for more in the second

# Build -> the settings of the method's pool, which holds the planned buffers, and the other one: of
# examples/arm/executor_runner, examples/espressif/executor_runner and zephyr/samples.
_BUILDS = {
    "Arm": (
        "-DET_ARM_BAREMETAL_METHOD_ALLOCATOR_POOL_SIZE",
        "-DET_ARM_BAREMETAL_SCRATCH_TEMP_ALLOCATOR_POOL_SIZE",
    ),
    "Espressif": (
        "-DET_ESP_METHOD_ALLOCATOR_POOL_SIZE",
        "-DET_ESP_SCRATCH_TEMP_ALLOCATOR_POOL_SIZE",
    ),
    "Zephyr": (
        "CONFIG_EXECUTORCH_METHOD_ALLOCATOR_POOL_SIZE",
        "CONFIG_EXECUTORCH_TEMP_ALLOCATOR_POOL_SIZE",
    ),
}


@dataclass(frozen=True, slots=True)
class PoolSize:
    """The smallest size of a pool in bytes. `less` is how a run with one byte less ended: `FAILS`,
    `WITHOUT` or `NOTHING`; `why` is the first allocation that did not fit. alignment: the largest
    requested one.
    """

    pool: str
    size: int
    alignment: int
    less: str
    why: str | None = None


@dataclass(frozen=True, slots=True)
class MethodPools:
    """The smallest pools of a method; `runs` is how many sets of inputs they are verified with."""

    method: str
    runs: int
    pools: tuple[PoolSize, ...]

    def size(self, pool: str) -> int:
        return next(one.size for one in self.pools if one.pool == pool)


@dataclass(frozen=True, slots=True, eq=False)
class Pools(Shown):
    """The smallest pools of the methods of a program."""

    program: Program
    name: str
    methods: tuple[MethodPools, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """Options of `smallest_pools`, as in `etscope.run.RunOptions`."""

    method: str | None = None
    data: PathLike | None = None
    testset_index: int | None = None
    seed: int | None = None
    libraries: PathLike | Sequence[PathLike] = ()
    timeout: float | None = None


@takes_fields(PoolOptions)
def smallest_pools(
    program: Any,
    inputs: Any = None,
    *,
    etrecord: Any = None,
    verify: bool = True,
    options: PoolOptions = PoolOptions(),
    **changes: Any,
) -> Pools:
    """Find the smallest pools of a method, by default of each, with the native runner.

    Takes the arguments of `etscope.run.run`. Raises `RuntimeFailure` when the program fails for
    another reason, or needs another size each time.
    """
    options = replace(options, **changes)
    index = options.testset_index
    opened = open_program(program, etrecord)
    if verify:
        opened.check_record()
    opened.check_weights(options.data)
    base = SharedOptions(data=options.data, libraries=options.libraries).job()
    chosen_runner(NATIVE, [], opened.program)
    folder = Folder()
    try:
        base = replace(base, program=opened.file(folder.path))
        found = []
        for name in _methods(opened, options.method, inputs, index):
            call = Call(name, inputs, _EXECUTIONS, 0, index)
            jobs = [replace(base, calls=(one,)) for one in job_calls(call, opened, options.seed)]
            if not jobs:
                raise MissingDataError(f"the bundled program has no test cases of method {name!r}")
            trials = _Trials(jobs, opened.program, folder.path, options.timeout)
            found.append(MethodPools(name, len(jobs), trials.smallest(name)))
    finally:
        folder.remove()
    return Pools(opened.program, opened.given or "program", tuple(found))


def _methods(
    opened: Opened, method: str | None, inputs: Any, testset_index: int | None
) -> list[str]:
    if method is not None or inputs is not None:
        return [opened.method_name(method)]
    if opened.bundle is not None:
        suites = [suite.method for suite in opened.bundle.suites if suite.cases]
        if not suites:
            raise MissingDataError(
                "the bundled program has no test cases", hint="give inputs (inputs=, --inputs)"
            )
        return suites
    if testset_index is not None:
        raise UsageError("a test case can be chosen of a bundled program only (.bpte)")
    return [one.name for one in opened.program.methods]


@dataclass(frozen=True, slots=True)
class _Trials:
    """Runs of a method in pools, one a set of inputs."""

    jobs: list[Job]
    program: Program
    folder: Path
    timeout: float | None

    def run(self, pools: PoolSizes) -> list[Result]:
        """Run on all inputs. Raises `PoolTooSmall` if a pool is too small and the run fails."""
        options = ExecutionOptions(NATIVE, timeout=self.timeout)
        results = []
        for job in self.jobs:
            with TemporaryDirectory(dir=self.folder) as place:
                job = replace(job, pools=pools)
                results.append(execute(job, Path(place), options, self.program).result)
        return results

    def peaks(self, pools: PoolSizes) -> list[tuple[int, int]]:
        """Return the most bytes of each pool, and the largest alignment."""
        results = self.run(pools)
        uses = list(zip(*(result.pools for result in results), strict=True))
        return [
            (max(use.peak for use in pool), max(use.alignment for use in pool)) for pool in uses
        ]

    def tried(self, pools: PoolSizes) -> tuple[str | None, str | None]:
        """Run in pools; return (None, None) if all went well, else how it ended and why."""
        try:
            results = self.run(pools)
        except PoolTooSmall as error:
            return FAILS, error.message
        why = next((result.pool_failure for result in results if result.pool_failure), None)
        return (None if why is None else WITHOUT), why

    def temporary(self, method: int, peak: int) -> int:
        """Find the smallest temporary pool for a method's pool; `peak` is the least it may be.

        It may be more: the runtime describes each kernel's arguments there while it loads a
        method, unless a bound of them exceeds the pool, and then does so in the method's pool
        (`Method::resolve_operator` in runtime/executor/method.cpp).
        """
        fits, step, too_small = peak, 64, peak - 1
        while self.tried(PoolSizes(method, fits))[0] is not None:
            if step > _SPARE:
                raise _unsteady("method")
            too_small, fits, step = fits, peak + step, step * 2
        while fits - too_small > 1:
            middle = (fits + too_small) // 2
            if self.tried(PoolSizes(method, middle))[0] is None:
                fits = middle
            else:
                too_small = middle
        return fits

    def smallest(self, method: str) -> tuple[PoolSize, ...]:
        """Find the smallest method's pool, then the smallest temporary pool that goes with it."""
        planned = sum(self.program.method(method).buffer_sizes)
        if planned + _SPARE > _LARGEST:
            raise MissingDataError(
                f"method {method!r} plans {planned:,} bytes: a pool has at most {_LARGEST:,}"
            )
        (own, alignment), (peak, temporary_alignment) = self.peaks(PoolSizes(_SPARE, _SPARE))
        temporary = self.temporary(own, peak)
        roomy = PoolSizes(_SPARE + planned, _SPARE, planned=True)
        (both, both_alignment), _ = self.peaks(roomy)
        alone, together = PoolSizes(own, temporary), PoolSizes(both, temporary, planned=True)
        found = []
        smaller = replace(alone, temporary=temporary - 1)
        for pool, size, aligned, exact, less in (
            (METHOD, own, alignment, alone, replace(alone, method=own - 1)),
            (PLANNED, both, both_alignment, together, replace(together, method=both - 1)),
            (TEMPORARY, temporary, temporary_alignment, alone, smaller),
        ):
            if self.tried(exact)[0] is not None:
                raise _unsteady(pool)
            outcome, why = self.tried(less) if size else (NOTHING, None)
            if outcome is None:
                raise _unsteady(pool)
            found.append(PoolSize(pool, size, aligned, outcome, why))
        return tuple(found)


def _unsteady(pool: str) -> RuntimeFailure:
    return RuntimeFailure(
        f"the runs do not agree on the size of a pool ({pool}), so there is no smallest",
        hint="the program's kernels or delegates request amounts of memory that do not follow "
        "from their inputs",
    )


# -- the report


def pools_report(found: Pools) -> Report:
    """Return the sizes, the planned buffers beside them, and the settings of builds."""
    sections = [_sizes(found), *_beside(found), _settings(found)]
    return Report({"file": found.name}, tuple(one for one in sections if len(one.table)))


def _sizes(found: Pools) -> Section:
    notes = [
        "Verified: runs in pools of exactly these sizes succeed; 'one byte less' is what came of "
        "a run with that. The temporary pool is the smallest for which the method's needs no more.",
        "Measured with the pointers of a 64-bit machine and a base aligned to 16. Structures of a "
        "method are smaller on a 32-bit target, never larger, so its pool needs at most this with "
        "the same kernels; kernels made for the target may take another size of the temporary "
        "pool.",
    ]
    aligned = max(pool.alignment for method in found.methods for pool in method.pools)
    if aligned > 16:
        notes.append(
            f"An allocation needs memory aligned to {aligned} bytes: a pool with another "
            f"alignment may need up to {aligned - 16} bytes more."
        )
    if any(pool.less == WITHOUT for method in found.methods for pool in method.pools):
        notes.append(
            f"'{WITHOUT}': with less memory the kernel computes in another way, perhaps "
            "more slowly."
        )
    return rows(
        "pools",
        "Smallest pools",
        (
            Column("method"),
            Column("pool"),
            Column("size", Kind.COUNT, unit="bytes"),
            Column("alignment", Kind.COUNT, priority=2),
            Column("one_byte_less", priority=1),
            Column("inputs", Kind.COUNT, priority=3),
        ),
        [
            (method.method, pool.pool, pool.size, pool.alignment, pool.less, method.runs)
            for method in found.methods
            for pool in method.pools
        ],
        tuple(notes),
    )


def _beside(found: Pools) -> Iterator[Section]:
    """Yield what takes memory beside the pools: the program and its buffers, then the delegates."""
    methods = [found.program.method(one.method) for one in found.methods]
    yield rows(
        "planned",
        "Planned buffers, and the program",
        (
            Column("method"),
            Column("memory_id", Kind.INT),
            Column("size", Kind.COUNT, unit="bytes"),
        ),
        [
            *(
                (method.name, number, size)
                for method in methods
                for number, size in enumerate(method.buffer_sizes)
                if number and size
            ),
            ("(the program's file)", None, len(found.program.source.buffer)),
        ],
        ("The program with its constants is read where it is: in flash, or a copy in RAM.",),
    )
    content = []
    for one in found.methods:
        delegates = [delegate.backend_id for delegate in found.program.method(one.method).delegates]
        content += [(one.method, name, delegates.count(name)) for name in dict.fromkeys(delegates)]
    yield rows(
        "delegates",
        "Delegates",
        (Column("method"), Column("backend"), Column("delegates", Kind.COUNT)),
        content,
        (
            "What delegates allocate with malloc, or have of their own, is beside the pools and is "
            "not in these sizes (XNNPACK: packed weights, workspace).",
        ),
    )


def _settings(found: Pools) -> Section:
    planned = max(method.size(PLANNED) for method in found.methods)
    temporary = max(method.size(TEMPORARY) for method in found.methods)
    content = []
    for build, (of_method, of_kernels) in _BUILDS.items():
        content.append((build, f"{of_method}={_written(planned, build)}"))
        content.append((build, f"{of_kernels}={_written(temporary, build)}"))
    notes = [
        "Of ExecuTorch's examples/arm/executor_runner, examples/espressif/executor_runner and "
        "zephyr/samples. They take the planned buffers, the method and the list of its inputs from "
        "the method's pool, so its size includes all of them; the inputs' own memory is planned, "
        "or the application's. An ETDump, or its debug buffer, comes on top.",
    ]
    if len(found.methods) > 1:
        notes.append(
            "The sizes are for the method that needs most, because the runners load one method "
            "at a time."
        )
    third = [
        method.buffer_sizes[3]
        for method in (found.program.method(one.method) for one in found.methods)
        if len(method.buffer_sizes) > 3
    ]
    if any(third):
        notes.append(
            "The Arm runner places memory id 3 in memory of its own: "
            f"-DET_ARM_BAREMETAL_PLANNED_FAST_MEMORY_SIZE={max(third):#x}; the method's pool needs "
            "about that much less."
        )
    return rows("settings", "To paste", (Column("build"), Column("setting")), content, tuple(notes))


def _written(size: int, build: str) -> str:
    """Return a size as the build takes it; 16 at least, as an array without elements is none."""
    size = max(size, 16)
    return str(size) if build == "Zephyr" else f"{size:#x}"
