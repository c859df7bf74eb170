"""Stack traces of graphs, in the forms that Python's and torch's versions write."""

from __future__ import annotations

import traceback

import pytest

from etscope.model.graph import SourceLine, source_lines

TRACE = """\
  File "/models/net.py", line 80, in forward
    x = block(x)
        ^^^^^^^^
  File "/models/a dir/block.py", line 34, in <genexpr>
    q, k, v = (part for part in self.qkv(x))
               ~~~~~~~~~~~~^^^
"""


def test_frames_are_outermost_first() -> None:
    assert source_lines(TRACE) == (
        SourceLine("/models/net.py", 80, "forward", "x = block(x)"),
        SourceLine(
            "/models/a dir/block.py", 34, "<genexpr>", "q, k, v = (part for part in self.qkv(x))"
        ),
    )
    assert str(source_lines(TRACE)[-1]) == "/models/a dir/block.py:34"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        *((None, ()), ("", ()), ("no frames here", ())),
        ('File "a.py", line 1, in f', (SourceLine("a.py", 1, "f"),)),
        ('  File "a.py", line 1\n    f()', (SourceLine("a.py", 1, "", "f()"),)),
        ('File "a.py", line 1, in f\n    a(\n        b,\n    )',
         (SourceLine("a.py", 1, "f", "a( b, )"),)),
        ('  File "a "quoted".py", line 12, in f\r\n    x\r\n',
         (SourceLine('a "quoted".py', 12, "f", "x"),)),
        ('Traceback (most recent call last):\n  File "a.py", line 2, in g\n',
         (SourceLine("a.py", 2, "g"),)),
        # A path of Windows has slashes; elsewhere, a name may have a backslash.
        ('File "C:\\me\\net.py", line 1, in f', (SourceLine("C:/me/net.py", 1, "f"),)),
        ('File "\\\\host\\net.py", line 1, in f', (SourceLine("//host/net.py", 1, "f"),)),
        ('File "/me/a\\net.py", line 1, in f', (SourceLine("/me/a\\net.py", 1, "f"),)),
    ],
)  # fmt: skip
def test_forms_of_frames(text: str | None, lines: tuple[SourceLine, ...]) -> None:
    assert source_lines(text) == lines


def test_what_python_writes_now() -> None:
    stack = traceback.extract_stack()
    lines = source_lines("".join(stack.format()))
    assert [(line.file, line.line, line.function) for line in lines] == [
        (frame.filename, frame.lineno, frame.name) for frame in stack
    ]
    assert lines[-1].text == "stack = traceback.extract_stack()"
