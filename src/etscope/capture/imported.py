"""Import a run that another machine wrote: a phone's dump with its record and program."""

from __future__ import annotations

from pathlib import Path

from etscope.capture.files import RunFiles
from etscope.errors import MissingDataError
from etscope.formats.bytes.files import atomic_write, copy_file
from etscope.formats.identify import BPTE, identify
from etscope.formats.program.bpte import read_program_file
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.run_json import (
    DEBUG_BIN,
    RUN_ETDP,
    RUN_JSON,
    VALUES_ETDP,
    encode_run_json,
    read_run_json,
)

__all__ = ["import_run"]


def import_run(files: RunFiles, folder: Path, *, force: bool = False) -> list[Path]:
    """Copy the files of a run into a folder, named as `etscope run` names them, and write its
    run.json; return the new files.

    Raises as `RunFiles.open`.
    """
    if files.dump is None:
        raise MissingDataError(f"{files.name} has no ETDump", hint="name the dump of the run")
    files.open(force=force)
    name = (files.program or files.record or files.dump).stem
    copies: dict[str, Path | None] = {
        RUN_ETDP: files.dump,
        VALUES_ETDP: files.values,
        DEBUG_BIN: files.logged[1],
    }
    saved = {} if files.facts is None else dict(read_run_json(files.facts).content)
    if files.facts is not None:
        beside = (files.facts.parent / f"{stem}{end}" for stem, end in _TENSORS)
        copies |= {path.name: path for path in beside if path.is_file()}
    if files.record is not None:
        copies[f"{name}.etrecord"] = files.record
        saved |= {
            "record": f"{name}.etrecord",
            "record_sha256": program_fingerprint(files.record),
        }
    if files.program is not None:
        suffix = "bpte" if identify(files.program) == BPTE else "pte"
        program = read_program_file(files.program)[0]
        copies[f"{name}.{suffix}"] = files.program
        saved |= {
            "program": f"{name}.{suffix}",
            "program_sha256": program_fingerprint(program.source.buffer),
        }
    for target, source in copies.items():
        if source is not None:
            copy_file(source, folder / target)
    with atomic_write(folder / RUN_JSON) as out:
        out.write(encode_run_json(saved))
    return [folder / target for target, source in copies.items() if source is not None]


_TENSORS = [(stem, end) for stem in ("inputs", "outputs") for end in (".npz", ".safetensors")]
