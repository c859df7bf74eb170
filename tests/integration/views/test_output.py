"""Outputs appear whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etscope.errors import UsageError
from etscope.views.output import open_output


def test_text_is_utf8_with_plain_line_ends_and_no_surrogates(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with open_output(path) as out:
        out.write("größe\n\ud800")
        out.flush()
        assert not path.exists()  # until it is complete
    assert path.read_bytes() == "größe\n\\ud800".encode()


@pytest.mark.parametrize("data", ["text", b"\x00\xff"])
def test_gz_compresses_equal_data_to_equal_files(tmp_path: Path, data: str | bytes) -> None:
    names = ("a.json.gz", "b.json.gz", "a.json")
    for name in names:
        with open_output(tmp_path / name, binary=isinstance(data, bytes)) as out:
            out.write(data)
    first, second, plain = ((tmp_path / name).read_bytes() for name in names)
    assert first == second
    assert gzip.decompress(first) == plain == (data if isinstance(data, bytes) else data.encode())


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(error), open_output(path) as out:
        out.write("half")
        raise error
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_mode_and_link_of_an_existing_file_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("before")
    real.chmod(0o640)
    link.symlink_to(real)
    with open_output(link) as out:
        out.write("after")
    assert link.is_symlink()
    assert real.read_text() == "after"
    assert real.stat().st_mode & 0o777 == 0o640


def test_what_is_not_a_file_is_written_to_directly(tmp_path: Path) -> None:
    with open_output("/dev/null") as out:
        out.write("gone")
    assert not Path("/dev/null").is_file()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    with open_output(pipe) as out:
        out.write("through")
    assert reader.communicate(timeout=120)[0] == b"through"


@pytest.mark.parametrize("place", ["", "missing/a.txt", "file/a.txt", "x" * 300])
def test_places_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(UsageError, match="cannot write"), open_output(tmp_path / place) as out:
        out.write("text")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_clear_error() -> None:
    with (
        pytest.raises(UsageError, match="cannot write /dev/full: No space left"),
        open_output("/dev/full") as out,
    ):
        out.write("text" * 100_000)


def test_errors_of_the_caller_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), open_output(tmp_path / "a.txt"):
        (tmp_path / "not-there").read_text()


def test_dash_is_standard_output(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with open_output("-") as out:
        out.write("text\n")
    with open_output("-", binary=True) as out:
        out.write(b"\xff")
    assert capsysbinary.readouterr().out == b"text\n\xff"


def test_bytes_do_not_go_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(UsageError, match="is a terminal"), open_output("-", binary=True):
        pass


def python(code: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    given = f"import os, sys\nfrom etscope.views.output import open_output\n{code}"
    return subprocess.run([sys.executable, "-c", given], stderr=subprocess.PIPE, **options)


def test_a_reader_that_goes_away_raises_inside_the_block() -> None:
    code = (
        "try:\n"
        "    with open_output('-') as out:\n"
        "        out.write('short')\n"
        "except BrokenPipeError:\n"
        "    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n"
        "    sys.exit(141)\n"
    )
    read, write = os.pipe()
    os.close(read)
    done = python(code, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_locale_without_a_character_does_not_end_the_program() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    code = "with open_output('-') as out:\n    out.write('größe')\n"
    assert python(code, stdout=subprocess.PIPE, env=ascii_only).stdout == b"gr\\xf6\\xdfe"
