"""The model that is cut into pieces: what a user names, or holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.errors import FormatError, MissingDataError
from etscope.formats.bytes.source import PathLike
from etscope.formats.identify import ETRECORD, identify

if TYPE_CHECKING:
    from etscope.bridge.programs.subprograms import Subject


def find_subject(
    model: Any,
    inputs: Sequence[PathLike | Any],
    *,
    backend: str,
    quantize: bool,
    strict: bool | None,
    method: str | None,
    seed: int,
) -> Subject:
    """The program to cut, of a name ("file.pt2", "record.etrecord", "file.py:make") or of a
    `Source`; `inputs` are samples, files of them among those, the model's own if there are none."""
    from etscope.bridge.programs.subprograms import check_samples, subject_of
    from etscope.export import Source, load_model

    source = model
    if isinstance(model, (str, Path)):
        model = str(model)
        source = _of_record(model) if _is_record(model) else load_model(model, seed=seed)
    elif not isinstance(model, Source):
        source = Source("", type(model).__name__, model)
    by_method = isinstance(source.model, Mapping)
    source = _one_method(source, method)
    samples = [
        source.read_inputs(one) if isinstance(one, (str, Path)) else one for one in inputs
    ] or [source.inputs]
    subject = subject_of(
        source.model,
        samples[0],
        samples[1:],
        backend=backend,
        quantize=quantize,
        strict=strict,
        method=None if by_method else method,
    )
    check_samples(subject)
    return subject


def _is_record(path: str) -> bool:
    try:
        return Path(path).is_file() and identify(path) == ETRECORD
    except FormatError:
        return False


def _of_record(path: str) -> Any:
    from etscope.bridge.programs.subprograms import nested
    from etscope.etrecord import parse_etrecord
    from etscope.export import Source

    record = parse_etrecord(path)
    programs = record.exported_programs
    if not programs:
        raise MissingDataError(
            f"{path} has no exported program, which is what can be cut",
            hint="etscope export writes it; generate_etrecord(exported_program=) takes it",
        )
    flat = record._representative_inputs
    main = "forward" if "forward" in programs else next(iter(programs))
    inputs = {} if flat is None else {main: nested(programs[main], flat)}
    return Source(path, Path(path).stem, programs, inputs)


def _one_method(source: Any, method: str | None) -> Any:
    """The source of one program where there is one for each method."""
    if not isinstance(source.model, Mapping):
        return source
    name = method or ("forward" if "forward" in source.model else next(iter(source.model)))
    if name not in source.model:
        raise MissingDataError(
            f"the model has no method {name!r}", hint=f"methods are: {', '.join(source.model)}"
        )
    inputs = source.inputs.get(name) if isinstance(source.inputs, Mapping) else source.inputs
    return replace(source, model=source.model[name], inputs=inputs)
