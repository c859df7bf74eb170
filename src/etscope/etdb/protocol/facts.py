"""What a runner tells of a run; the fields are those of docs/etdb-protocol.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import RuntimeFailure


class Why(IntEnum):
    """Why a run stands still."""

    BEGUN = 0
    STOP = 1
    TEST = 2
    MOST_STEPS = 3
    END = 4
    INTERRUPTED = 5
    FAILED = 6
    REACHED = 7


class Condition(IntEnum):
    """What a test of the runner's looks for in the numbers of a tensor."""

    NAN = 1
    INF = 2
    BELOW = 3
    ABOVE = 4


@dataclass(frozen=True, slots=True)
class NumberTest:
    """A condition on what instructions write. at: bool [instructions], those that are tested."""

    condition: Condition
    at: npt.NDArray[np.bool_]
    bound: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """Where something ran again and gave something else. value: None when another instruction
    ran."""

    step: int
    instruction: int
    value: int | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """Where a run stands. step: instructions executed since its beginning, over all passes of
    loops. instruction: the last of them, or the one that failed; None at step 0. ran: int64
    [instructions that ran since the step before the request], their indices. test: which of the
    request's tests holds, in `count` elements of the value `value`."""

    why: Why
    step: int
    instruction: int | None
    last_ns: int
    total_ns: int
    ran: npt.NDArray[np.int64]
    test: int | None = None
    value: int | None = None
    count: int = 0
    differences: tuple[Difference, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """A tensor of the runtime without its data. dtype: numpy's, with those of ml_dtypes.
    dim_order: of the dimensions in memory, outermost first. nbytes: in memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """The numbers of a tensor. least to deviation (population) are of the finite ones, NaN where
    there are none."""

    elements: int
    nan: int
    plus_inf: int
    minus_inf: int
    least: float
    greatest: float
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Core:
    """The ETDump and the debug buffer of a run up to where it stood or died."""

    etdump: bytes
    debug_buffer: bytes
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """The program that a server was started with."""

    name: str
    size: int
    crc32: int


@dataclass(frozen=True, slots=True)
class RunnerFacts:
    """What a runner is. program: None when it was started without one."""

    executorch: str
    architecture: str
    program: ProgramFacts | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What loading a method gave. method: its name. values, inputs: how many it has."""

    method: str
    ns: int
    values: int
    inputs: int


class RunnerDied(RuntimeFailure):
    """The program killed the runner's process at an instruction. core: what it left, if the run
    was traced."""

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        step: int = 0,
        instruction: int | None = None,
        core: Core | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason, self.step, self.instruction, self.core = reason, step, instruction, core


@dataclass(slots=True)
class Described:
    """A value of the runtime: `tensor` of a tensor, `items` of a list, else `scalar`."""

    tensor: TensorFacts | None = None
    items: list[Described] | None = field(default=None)
    scalar: Any = None
