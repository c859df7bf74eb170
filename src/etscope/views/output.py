"""Outputs ("-" is standard output; a file appears complete or not at all), and JSON in them."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import IO, Any, TextIO

from etscope.errors import UsageError
from etscope.formats.bytes.files import atomic_write

_CHUNK = 1000  # items written at a time


@contextmanager
def open_output(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a stream of text (UTF-8) or bytes; a path that ends in ".gz" is compressed.

    A file is written by `atomic_write`, so a failure keeps the previous one. Standard output is
    flushed, so a `BrokenPipeError` is raised here and not when the interpreter exits; it passes
    through, as any error of the caller does.

    Raises `UsageError` for a path that cannot be written, and for bytes to a terminal.
    """
    name = os.fspath(path)
    if name == "-":
        try:
            with _standard_output(binary) as out:
                yield out
        except OSError as error:
            if error.filename is not None or isinstance(error, BrokenPipeError):
                raise
            raise UsageError(f"cannot write standard output: {error.strerror or error}") from error
        return
    with atomic_write(path) as file, ExitStack() as streams:
        stream: Any = file
        if name.endswith(".gz"):
            import gzip

            # No name and no time in the header: equal data gives equal files.
            stream = streams.enter_context(gzip.GzipFile("", "wb", 6, stream, mtime=0))
        if not binary:
            # Names from hostile files may hold lone surrogates, which UTF-8 cannot encode.
            text = io.TextIOWrapper(
                stream, encoding="utf-8", errors="backslashreplace", newline="\n"
            )
            stream = streams.enter_context(text)
        yield stream


@contextmanager
def _standard_output(binary: bool) -> Iterator[IO[Any]]:
    out = sys.stdout
    if out is None:
        raise UsageError("cannot write standard output: it is closed")
    if binary and out.isatty():
        raise UsageError(
            "this format is binary, and standard output is a terminal",
            hint="name a file with -o, or pipe the output",
        )
    # A locale that lacks a character must not end the program in the middle of a table.
    if not binary and isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        out.reconfigure(errors="backslashreplace")
    out.flush()
    yield out.buffer if binary else out
    out.flush()
    if binary:
        out.buffer.flush()


def write_joined(out: TextIO, items: Iterable[str], separator: str = "") -> None:
    """Write items with a separator between them, many at a time, without holding all of them."""
    before, left = "", iter(items)
    while chunk := list(islice(left, _CHUNK)):
        out.write(before + separator.join(chunk))
        before = separator


# -- JSON by its standard: no NaN, no infinity, and only ASCII.
#
# ASCII keeps names from a hostile file from controlling the terminal that prints the text, and can
# hold lone surrogates, which UTF-8 cannot.

_encode = json.JSONEncoder(allow_nan=False).encode  # made once: it takes longer than a row


def dumps(value: Any, nan: str | None = None) -> str:
    """Return `value` as JSON on one line. Infinities are the texts "Infinity" and "-Infinity", and
    NaN is `nan`."""
    try:
        return _encode(value)
    except ValueError:  # an infinity or NaN, for which JSON has no number
        return _encode(finite(value, nan))


def finite(value: Any, nan: str | None = None) -> Any:
    """Replace NaN by `nan` and infinities by texts, also in lists and dicts: JSON has neither."""
    if isinstance(value, float) and not math.isfinite(value):
        return nan if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(item, nan) for key, item in value.items()}
    return [finite(item, nan) for item in value] if isinstance(value, list) else value
