"""The one place that opens outputs: "-" is standard output; a file appears whole or not at all."""

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
    """A stream to write to, of text (UTF-8) or bytes; a path that ends in ".gz" is compressed.

    A file is written beside its place under a temporary name and renamed when complete, so a
    failure leaves what was there before. Things that are not files (pipes, /dev/null) are written
    to directly. Standard output is flushed, so a `BrokenPipeError` is raised here and not when
    the interpreter exits; it passes through, as any error of the caller's does.

    Raises `UsageError` for a place that cannot be written, and for bytes to a terminal.
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
        # Of the caller's errors those of writing are ours: they name no file. A `BrokenPipeError`
        # tells that the reader went away, which is not a failure.
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise _unwritable(name, error) from error
    finally:  # an interrupt too leaves nothing behind
        with suppress(OSError):
            part.unlink()


def _opened(file: Path, packed: bool, binary: bool, streams: ExitStack) -> IO[Any]:
    """`file` open for writing, with what must be closed after it in `streams`."""
    out: Any = streams.enter_context(file.open("wb"))
    if packed:
        import gzip  # with all that it imports, for those who ask for it

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
    """Say which output it is that the system refuses."""
    try:
        yield
    except OSError as error:
        raise _unwritable(name, error) from error


def _unwritable(name: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write {name}: {error.strerror or error}")
