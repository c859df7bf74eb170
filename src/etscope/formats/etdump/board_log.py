"""Take the files out of a board's log.

A runner without a file system prints its dump as text. ExecuTorch's `arm_executor_runner.cpp`
(`write_etdump`) writes commands of a shell, each file in one line:

    echo "TElGQQ…" | base64 -d >debug_buffer.bin
    echo "aBUAAA…" | base64 -d >etdump.bin

Other output stands before and after, and a terminal may have wrapped the line.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from etscope.errors import FormatError, reading
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.identify import BOARD_FILE, has_board_files

__all__ = ["files_in_log"]

_START = b'echo "'
_END = re.compile(rb'"\s*' + BOARD_FILE.pattern + rb"\s*([\w./-]+)")
_FOREIGN = re.compile(rb"[^A-Za-z0-9+/=\s]")
_AGAIN = "record it again: the whole output, without time stamps or colours inside of lines"


def files_in_log(path: PathLike) -> dict[str, bytes]:
    """Return the files in a board's log by their names there; {} without any.

    Raises `FormatError` with the line for a damaged or cut off file, and for two of one name, as of
    two runs; `MissingFileError`.
    """
    source = open_source(path, "board's log", may_be_empty=True)
    with reading("board's log", source.name):
        content = bytes(source.buffer)
        found: dict[str, bytes] = {}
        for name, data, line in _files(content) if has_board_files(source.buffer) else ():
            if name in found:
                raise FormatError(
                    f"line {line:,}: a second {name}: this log is of several runs",
                    hint="keep the lines of one run",
                )
            found[name] = data
        return found


def _files(content: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield the name, the bytes and the line of each file."""
    at = 0
    while (start := content.find(_START, at)) >= 0:
        begin = start + len(_START)
        line = content.count(b"\n", 0, start) + 1
        end = _END.search(content, begin)
        if end is None:
            if content.find(b'"', begin) < 0:
                raise FormatError(f"line {line:,}: the log ends inside of a file", hint=_AGAIN)
            return  # another command
        following = content.find(_START, begin)
        if 0 <= following < end.start():  # another command
            at = following
            continue
        name, text = end[1].decode(), content[begin : end.start()]
        if foreign := _FOREIGN.search(text):
            where = line + text.count(b"\n", 0, foreign.start())
            raise FormatError(
                f"line {where:,}: {name} is damaged: {foreign[0]!r} is not a letter of base64",
                hint=_AGAIN,
            )
        try:
            data = base64.b64decode(b"".join(text.split()), validate=True)
        except binascii.Error as error:
            raise FormatError(f"line {line:,}: {name} is damaged: {error}", hint=_AGAIN) from error
        yield name, data, line
        at = end.end()
