"""Open outputs: "-" is standard output; a file appears complete or not at all."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from etscope.errors import UsageError

__all__ = ["open_output"]


@contextmanager
def open_output(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """Open a stream of text (UTF-8) or bytes; a path that ends in ".gz" is compressed.

    A file is written in its folder under a temporary name and renamed when complete, so a failure
    keeps the previous file. Pipes and devices (/dev/null) are written directly. Standard output is
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
            raise _unwritable("standard output", error) from error
        return
    target = Path(os.path.realpath(path))  # a link is followed, not replaced
    with _naming(name):
        special = target.exists() and not target.is_file()
    part = target.with_name(f".{target.name[:200]}.{os.urandom(4).hex()}.part")
    try:
        with ExitStack() as streams:
            with _naming(name):
                file = target if special else part
                out = _opened(file, target.suffix == ".gz", binary, streams)
            yield out
        if not special:
            with _naming(name):
                if target.exists():
                    part.chmod(stat.S_IMODE(target.stat().st_mode))
                part.replace(target)
    except OSError as error:
        # An error without a file name comes from writing this output. A `BrokenPipeError` means
        # that the reader closed the pipe, which is not a failure.
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise _unwritable(name, error) from error
    finally:  # also after an interrupt
        with suppress(OSError):
            part.unlink()


def _opened(file: Path, packed: bool, binary: bool, streams: ExitStack) -> IO[Any]:
    """`file` open for writing, with what must be closed after it in `streams`."""
    out: Any = streams.enter_context(file.open("wb"))
    if packed:
        import gzip

        # No name and no time in the header: equal data gives equal files.
        out = streams.enter_context(gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0))
    if not binary:
        # Names from hostile files may hold lone surrogates, which UTF-8 cannot encode.
        text = io.TextIOWrapper(out, encoding="utf-8", errors="backslashreplace", newline="\n")
        out = streams.enter_context(text)
    return out  # type: ignore[no-any-return]


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


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turn errors of the system into errors that name the output."""
    try:
        yield
    except OSError as error:
        raise _unwritable(name, error) from error


def _unwritable(name: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write {name}: {error.strerror or error}")
