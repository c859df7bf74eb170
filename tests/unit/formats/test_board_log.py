"""Files in the text of a board's log."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from etscope.errors import FormatError, MissingFileError
from etscope.formats.etdump.board_log import files_in_log

DUMP = bytes(range(256)) * 4
TEXT = base64.b64encode(DUMP).decode()
COMMAND = f'echo "{TEXT}" | base64 -d >etdump.bin\n'


def log(folder: Path, text: str) -> Path:
    path = folder / "uart.log"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        COMMAND,
        f"boot\r\n[00:01.5] {COMMAND}python3 -m inspector\r\n",
        f'echo "ready"\n{COMMAND}',
        f'{COMMAND}echo "done"\n',
        COMMAND.replace(TEXT, "\r\n".join(TEXT[at : at + 64] for at in range(0, len(TEXT), 64))),
        COMMAND.replace(" >", " > out/").replace("out/etdump.bin", "etdump.bin"),
    ],
)
def test_a_file_is_found_between_other_lines(text: str, tmp_path: Path) -> None:
    assert files_in_log(log(tmp_path, text)) == {"etdump.bin": DUMP}


def test_several_files(tmp_path: Path) -> None:
    path = log(tmp_path, COMMAND.replace("etdump", "debug_buffer") + COMMAND)
    assert files_in_log(path) == {"debug_buffer.bin": DUMP, "etdump.bin": DUMP}


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\0" * 100 + COMMAND.encode()])
def test_other_files_have_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    assert files_in_log(path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"one\n{COMMAND}{COMMAND}", "line 3: a second etdump.bin: this log is of several runs"),
        (
            "one\n" + COMMAND.replace(TEXT[:80], TEXT[:40] + "\n[12:00] " + TEXT[40:80]),
            "line 3: etdump.bin is damaged: b'\\['",
        ),
        (COMMAND.replace(TEXT, TEXT[:-5]), "line 1: etdump.bin is damaged: .*padding"),
        (COMMAND + f'echo "{TEXT[:50]}', "line 2: the log ends inside of a file"),
    ],
)
def test_a_damaged_log_says_where(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        files_in_log(log(tmp_path, text))
    with pytest.raises(MissingFileError):
        files_in_log(tmp_path / "nothing")
