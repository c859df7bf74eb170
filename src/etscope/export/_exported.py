"""What an export gives, and its files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from etscope.errors import UsageError
from etscope.formats.bytes.atomic_write import make_folder, replacing

if TYPE_CHECKING:
    from etscope.etrecord import ETRecord

PROGRAM, RECORD, BUNDLE = ".pte", ".etrecord", ".bpte"


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A program, its record, and what it should answer to its example inputs.

    program: the `ExecutorchProgramManager`.
    record: the `ETRecord`, with the program's bytes in it.
    example_inputs, reference_outputs: of each method, flat: the values in the order of the
        program's own lists.
    """

    program: Any
    record: ETRecord
    example_inputs: Mapping[str, tuple[Any, ...]]
    reference_outputs: Mapping[str, tuple[Any, ...]]

    def program_bytes(self) -> bytes:
        """The .pte file."""
        buffer = self.record.program_buffer()
        if buffer is None:
            raise UsageError("the record of this export has lost its program")
        return buffer

    def bundle(self) -> bytes:
        """The .bpte file: the program with a test case for each method.

        Raises `BundleError` for inputs or outputs that the format has no place for.
        """
        from etscope.bundled_program import bundle_cases

        cases = {
            method: [(inputs, self.reference_outputs[method])]
            for method, inputs in self.example_inputs.items()
        }
        return bundle_cases(self.program_bytes(), cases)

    def save(
        self, folder: str | os.PathLike[str], name: str = "model", *, bundle: bool = True
    ) -> tuple[Path, ...]:
        """Write name.pte, name.etrecord and, with `bundle`, name.bpte. The folder is made.

        They replace files of these names when all of them are complete; before that, nothing is
        touched.
        """
        _check_name(name)
        writers: dict[str, Callable[[IO[bytes]], Any]] = {
            PROGRAM: partial(_write, self.program_bytes),
            RECORD: self.record.save,
        }
        if bundle:
            writers[BUNDLE] = partial(_write, self.bundle)
        place = make_folder(folder)
        paths = tuple(place / f"{name}{suffix}" for suffix in writers)
        with ExitStack() as files:
            opened = [files.enter_context(replacing(path)) for path in paths]
            for file, write in zip(opened, writers.values(), strict=True):
                write(file)
        return paths


def _write(content: Callable[[], bytes], file: IO[bytes]) -> None:
    file.write(content())


def _check_name(name: str) -> None:
    if not name or name in (".", "..") or Path(name).name != name:
        raise UsageError(f"not a name for files: {name!r}", hint="give a name without a folder")
