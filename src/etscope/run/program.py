"""Open a program in any of the forms that a caller may give."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etscope.analysis.matching.export import Export
from etscope.errors import FormatError, MissingDataError, UsageError
from etscope.etrecord import as_record
from etscope.formats.bytes.files import PathLike, copy_file
from etscope.formats.etrecord.reader import RecordView
from etscope.formats.identify import ETDUMP, ETRECORD, identify
from etscope.formats.program.bpte import BundledFile, read_program_file
from etscope.formats.program.ptd import check_external, external_keys, read_ptd
from etscope.formats.program.pte import Program, program_fingerprint, read_pte

__all__ = ["Opened", "open_program"]

# Copied in less than 0.1 s, and of 2 GiB of kept runs a small part.
_MOST_COPIED = 64 << 20  # bytes


@dataclass(frozen=True, eq=False)
class Opened(Export):
    """A program to run, with its record and data, and the files that they come from. It always has
    a program.

    given: the path of the file that was given, of any kind.
    path: the file that is exactly the program; None when it is part of another file or in memory.
    """

    program: Program
    given: str | None = None
    path: Path | None = None
    bundle: BundledFile | None = None

    def file(self, folder: Path) -> Path:
        """Return a file with exactly the program; if there is none, make it in `folder`."""
        file = folder / "program.pte"
        if self.path is not None:
            if str(self.path).isprintable():
                return self.path
            file.symlink_to(self.path)  # the runtime takes no path that is not text
            return file
        if not file.exists():
            with file.open("wb") as out:
                out.write(self.program.source.buffer)
        return file

    def files(self) -> dict[str, str | None]:
        """Return the program and the record as run.json names them, with their hashes."""
        record = self._record_path
        return {
            "program": self.given,
            "program_sha256": program_fingerprint(self.program.source.buffer),
            "record": None if record is None else str(record),
            "record_sha256": None if record is None else program_fingerprint(record),
        }

    def copy_into(self, folder: Path) -> dict[str, Any]:
        """Copy the program and the record into the folder of a run, unless they are large; return
        their entries in run.json: a name for a file in the folder, else a path.
        """
        given = None if self.given is None else Path(self.given)
        record = self._record_path
        files = {path.absolute() for path in (given, record) if path is not None}
        outside = [path for path in files if path.parent != folder.absolute()]
        copied: list[str] = []
        if sum(path.stat().st_size for path in outside) <= _MOST_COPIED:
            copied = sorted(path.name for path in outside)
            for path in outside:
                copy_file(path, folder / path.name)

        def named(path: Path | None) -> str | None:
            path = None if path is None else path.absolute()
            inside = path not in outside or copied
            return None if path is None else path.name if inside else str(path)

        return {"program": named(given), "record": named(record), "copied": copied}

    @property
    def _record_path(self) -> Path | None:
        path = getattr(self.record, "path", None)  # a record in memory has none
        return None if path is None else Path(path)

    def method_name(self, wanted: str | None) -> str:
        """Return the method to run: the wanted one, else "forward", else the only one.

        Raises `MissingDataError` for a method that the program does not have, `UsageError` when
        there are several and none is "forward".
        """
        if wanted is not None:
            return self.program.method(wanted).name
        names = [method.name for method in self.program.methods]
        if "forward" in names or len(names) == 1:
            return "forward" if "forward" in names else names[0]
        raise UsageError(
            f"the program has several methods and no forward: {', '.join(names)}",
            hint="name one: method=, --method",
        )

    def check_record(self, name: str | None = None) -> None:
        """Raise `MismatchError` for a record that holds the fingerprints of another program."""
        if self.record is not None and self.record.fingerprints is not None:
            super().check_record(name)

    def check_weights(self, data: PathLike | None) -> None:
        """Raise `UsageError` if the program needs a separate file of weights and none is named;
        `MismatchError` if the file is of another program.
        """
        check_external(self.program, [] if data is None else [read_ptd(data)])


def open_program(program: Any, etrecord: Any = None) -> Opened:
    """Open a program: a path or bytes of a .pte, a .bpte or an ETRecord that holds its program; an
    `ETRecord`, an `ExecutorchProgramManager`, or a `BundledProgram`.

    `etrecord` is its record, when it does not come with one. Raises `FormatError` for a file that
    is damaged or not a program, `MissingDataError` for a record without its program, `UsageError`
    for another type.
    """
    if isinstance(program, Opened):
        opened = program
    elif isinstance(program, (str, os.PathLike)):
        opened = replace(_from_file(program), given=os.fspath(program))
    elif isinstance(program, (bytes, bytearray, memoryview)):
        opened = _from_file(program)
    elif hasattr(program, "method_test_suites"):
        from etscope.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

        opened = _from_file(serialize_from_bundled_program_to_flatbuffer(program))
    elif hasattr(program, "write_to_file") and hasattr(program, "exported_program"):
        opened = _from_manager(program)
    elif hasattr(program, "edge_dialect_program"):
        opened = _from_record(as_record(program), "the ETRecord")
    else:
        raise UsageError(
            f"cannot run {type(program).__name__}",
            hint="give a path or bytes of a .pte, .bpte or ETRecord, an ExecutorchProgramManager, "
            "an ETRecord or a BundledProgram; a torch.nn.Module must be exported first: "
            "etscope export",
        )
    return opened if etrecord is None else replace(opened, record=as_record(etrecord))


def _from_file(program: Any) -> Opened:
    kind = identify(program)
    path = Path(program) if isinstance(program, (str, os.PathLike)) else None
    if kind == ETRECORD:
        return _from_record(as_record(program), str(path) if path else "the ETRecord")
    if kind == ETDUMP:
        raise FormatError(
            "this is an ETDump, the result of a run, not a program",
            path=path,
            hint="give the .pte file",
        )
    opened, bundle = read_program_file(program)
    is_file = path is not None and bundle is None
    return Opened(opened, path=Path(program).resolve() if is_file else None, bundle=bundle)


def _from_record(record: RecordView, name: str) -> Opened:
    view = record.program_view()
    if view is None:
        raise MissingDataError(
            f"{name} does not hold its program",
            hint="records of ExecuTorch's own tools never have the program: give the .pte file, "
            "with etrecord= (--etrecord); etscope.generate_etrecord and etscope export "
            "write records with the program",
        )
    return Opened(read_pte(view), record=record)


def _from_manager(manager: Any) -> Opened:
    from etscope.bridge.programs import program_buffer

    made = None
    with contextlib.suppress(RuntimeError, AttributeError):  # without generate_etrecord=True
        made = manager.get_etrecord()
    record = None if made is None else as_record(made)
    opened = Opened(read_pte(program_buffer(manager)), record=record)
    if external_keys(opened.program):
        raise UsageError(
            "the program's weights are stored in a separate file",
            hint="save the program (program.save) and its weights (write_tensor_data_to_file), and "
            "give the paths: data=",
        )
    return opened
