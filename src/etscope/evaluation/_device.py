"""The device: some samples run in one process of the runtime, their values recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etscope.analysis.memory.memory import debug_buffer_bytes
from etscope.analysis.numerics.gap import MethodRun, runs_of
from etscope.analysis.profile.trace import Trace
from etscope.errors import MismatchError
from etscope.formats.etdump.debug_buffer import DebugBuffer
from etscope.formats.etdump.reader import read_etdump
from etscope.run.execute import How, chosen_runner, execute
from etscope.run.folder import Folder
from etscope.run.job import INTERMEDIATE_OUTPUTS, Job, JobCall
from etscope.run.program import Opened

_BYTES, _SAMPLES = 64 << 20, 64  # recorded in one process


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A program on the runtime, and how it is run.

    fresh: the method is loaded anew for each sample, so that none has the state of another.
    """

    opened: Opened
    method: str
    data: Path | None
    libraries: tuple[Path, ...]
    threads: int | None
    runner: str
    isolate: bool
    timeout: float | None
    fresh: bool
    forced: bool

    @property
    def batch(self) -> int:
        """How many samples one process takes: what they record stays below some size."""
        size = debug_buffer_bytes(self.opened.program, self.method)
        return max(1, min(_SAMPLES, _BYTES // max(size, 1)))

    @contextmanager
    def ran(self, samples: Sequence[Sequence[Any]]) -> Iterator[tuple[Trace, list[MethodRun]]]:
        """Run samples, flat inputs of each; their trace, and the run of each. What was recorded
        goes at the end of the block.

        Raises `RuntimeFailure` when one of them fails.
        """
        folder = Folder()
        try:
            trace = self._trace(samples, folder.path)
            runs = runs_of(trace, self.method)
            if len(runs) != len(samples):
                raise MismatchError(
                    f"{len(samples)} samples were run, and the dump has {len(runs)} runs of the "
                    f"method {self.method!r} of the record",
                    hint="take the program and the ETRecord of one export",
                )
            yield trace, runs
        finally:
            folder.remove()

    def _trace(self, samples: Sequence[Sequence[Any]], folder: Path) -> Trace:
        job = Job(
            program=self.opened.file(folder),
            calls=tuple(
                JobCall(self.method, tuple(inputs), fresh=self.fresh) for inputs in samples
            ),
            data=self.data,
            debug_level=INTERMEDIATE_OUTPUTS,
            threads=self.threads,
            libraries=self.libraries,
        )
        how = How(
            runner=chosen_runner(self.runner, [job], self.opened.program, isolate=self.isolate),
            isolate=self.isolate,
            timeout=self.timeout,
        )
        place = folder / "values"
        place.mkdir()
        done = execute(job, place, how, self.opened.program)
        buffer = done.debug_buffer
        return Trace(
            dump=read_etdump(place / "run.etdp" if done.etdump is None else done.etdump),
            record=self.opened.record,
            debug_buffer=None if buffer is None else DebugBuffer.open(buffer),
            program=self.opened.program,
            forced=self.forced,
        )


__all__ = ["Device"]
