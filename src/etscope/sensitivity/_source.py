"""The model, its samples and its calibration, by name or as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etscope.errors import MissingDataError

SUFFIXES = (".npz", ".npy", ".safetensors", ".pt", ".pth")


class Given(NamedTuple):
    model: Any
    inputs: Any
    dynamic_shapes: Any
    samples: list[Any]
    calibration: list[Any]


def sources_of(
    model: Any,
    inputs: Any,
    samples: Sequence[Any],
    calibration: Sequence[Any],
    *,
    seed: int,
    dynamic: Any,
) -> Given:
    """All of it loaded. A file holds one set of inputs; a folder, the files of tensors in it."""
    from etscope.export import Source, load_model

    source = model
    if isinstance(model, (str, Path)):
        source = load_model(str(model), seed=seed)
    elif not isinstance(model, Source):
        source = Source("", type(model).__name__, model, None, dynamic)
    if isinstance(inputs, (str, Path)):
        inputs = source.read_inputs(inputs)
    return Given(
        source.model,
        source.inputs if inputs is None else inputs,
        source.dynamic_shapes if dynamic is None else dynamic,
        list(_loaded(source, samples)),
        list(_loaded(source, calibration)),
    )


def _loaded(source: Any, given: Sequence[Any]) -> Iterator[Any]:
    for one in given:
        if not isinstance(one, (str, Path)):
            yield one
            continue
        for path in _files(Path(one)):
            yield source.read_inputs(path)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = [one for one in path.iterdir() if one.suffix.lower() in SUFFIXES]
    found = sorted(files, key=_by_number)
    if not found:
        raise MissingDataError(
            f"{path} has no files of tensors", hint=f"those are {', '.join(SUFFIXES)}"
        )
    return found


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Names with their numbers by value: 2 before 10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
