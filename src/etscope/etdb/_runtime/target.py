"""The run on the runtime itself, as the debugger walks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from etscope.analysis.matching import Matching, Pair
from etscope.etdb._files import Files
from etscope.etdb._runtime.facts import Condition, Core, Described, RunnerFacts, Statistics
from etscope.etdb._target import RunInfo, Stop

if TYPE_CHECKING:
    from etscope.etdb._runtime.launch import Launcher


@dataclass(frozen=True, slots=True)
class Watch:
    """A condition on the numbers that operators write, tested where the program runs. at: the
    stops at which it is; None for all. It is asked once for each operator of the program."""

    condition: Condition
    bound: float = 0.0
    at: Callable[[Stop], bool] | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The test that ended `RuntimeTarget.go`. watch: its index among those that were given.
    count: in how many elements of the output `output` (counts the stop's values) it holds."""

    watch: int
    output: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """An operator that gave something else when it ran again. name: of the stop, or of the
    instruction where there is no stop. output: which of its values; None where another
    instruction ran."""

    step: int
    instruction: int
    name: str
    output: int | None

    def __str__(self) -> str:
        what = "another operator ran" if self.output is None else "it gave other numbers"
        return f"when the run was repeated, {what} at {self.name} (instruction {self.instruction})"


class RuntimeTarget:
    """A method on the ExecuTorch runtime. Its stops are the kernels and delegates of the program;
    those that lie ahead are foreseen in the program's order, and corrected when branches and loops
    have run.

    Connects, loads the method and begins a run when it is made. Raises `MissingDataError` without
    a program or inputs, `MismatchError` for a record or server of another program, `UsageError`
    for inputs that do not fit, `RuntimeFailure` for an operator or backend that the runner lacks.
    """

    kind = "runtime"

    def __init__(
        self,
        files: Files,
        launcher: Launcher,
        *,
        method: str | None = None,
        inputs: Sequence[Any] | None = None,
        token: str = "",
        threads: int = 0,
        traced: bool = False,
    ) -> None:
        """inputs: flat, arrays, numbers or None; by default those of the record or the bundled
        program. traced: keep an ETDump from the start, so that a crash leaves a core."""

    # -- the Target protocol

    @property
    def method(self) -> str: ...

    @property
    def runs(self) -> Sequence[RunInfo]: ...

    @property
    def run(self) -> int: ...

    @property
    def stops(self) -> Sequence[Stop]: ...

    def choose(self, run: int) -> None: ...

    def reach(self, position: int) -> None: ...

    def device_values(self, position: int) -> list[Any]: ...

    def value_of(self, node: str, position: int) -> Any: ...

    def patch(self, node: str, position: int, value: Any) -> None: ...

    # -- more than others can

    @property
    def place(self) -> str:
        """Where it runs, for people: "here", "board:2345", "ssh:pi"."""
        ...

    @property
    def facts(self) -> RunnerFacts:
        """What the runner said it is."""
        ...

    @property
    def inputs(self) -> Sequence[Any]:
        """What the run began with, flat."""
        ...

    @property
    def position(self) -> int | None:
        """The stop that the run stands at; None before the first."""
        ...

    @property
    def ended(self) -> bool:
        """Whether all instructions have run."""
        ...

    @property
    def held(self) -> Held | None:
        """The test that ended the last `go`; None when a stop did."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether a person ended the last `go`: the stop is the next operator's."""
        ...

    @property
    def last_ns(self) -> int:
        """How long the last instruction took."""
        ...

    @property
    def total_ns(self) -> int:
        """How long all instructions took since the beginning."""
        ...

    @property
    def differences(self) -> Sequence[Replayed]:
        """What gave something else when it ran again, since the beginning."""
        ...

    def take_news(self) -> list[str]:
        """Sentences that a person must be told, each once: differences, a crash that did not come
        again."""
        ...

    def go(
        self, start: int, wanted: Callable[[Stop], bool], watches: Sequence[Watch] = ()
    ) -> int | None:
        """Run on from a stop (-1: from the beginning) without looking at it, to the first that is
        `wanted` or at which a watch holds; its position, None when the run ends.

        wanted: is asked once for each operator of the program, so it may look at all of a stop but
            `position`, `loop_pass` and `ticks`.

        Raises `RuntimeFailure` when an operator fails, `RunnerDied` when the program kills its
        process, `DeviceLost` when the runner goes away."""
        ...

    def restart(self) -> None:
        """Begin the run anew, without what was set; connects again if the runner is gone."""
        ...

    def pairs_at(self, position: int) -> Mapping[int, Pair]:
        """Of which nodes the values of a stop are, by their place among `device_values`."""
        ...

    def matched(self) -> Matching:
        """Which values are values of which nodes. Raises `MissingDataError` without a record."""
        ...

    def value_in_pass(self, node: str, loop_pass: int) -> Any:
        """The value that a node had in a pass of its loop, if it is still there."""
        ...

    def value_at(self, index: int) -> Any:
        """The value of that index in the method, as it is now."""
        ...

    def indices_of(self, where: int | str) -> tuple[int, ...]:
        """The indices in the method of a stop's values (by its position), or of a node's."""
        ...

    def spec(self, where: int | str) -> list[Described]:
        """What kind of values a stop gave (by its position), or a node has, without their data."""
        ...

    def statistics_of(self, where: int | str) -> list[Statistics | None]:
        """The numbers of a stop's values, or of a node's, counted where it runs; None for what is
        no tensor."""
        ...

    def core(self) -> Core:
        """The ETDump and debug buffer of the run up to here; after a crash, up to it."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


__all__ = ["Held", "Replayed", "RuntimeTarget", "Watch"]
