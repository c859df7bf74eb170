"""Sources that work on Windows and macOS, too; tests/integration/test_windows.py runs commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.contract.source_tree import ROOT, SOURCE
from tests.support.windows import MODULES

TEXT = {"read_text": 0, "write_text": 1}  # the position of the encoding
PROCESS = ("run", "Popen", "check_output")
OPENING = re.compile(r"(read_text|write_text|open|Popen|run|check_output)\(")
MODE = re.compile(r"[rwaxt+]{1,3}")


def texts_without_encoding(source: str) -> Iterator[int]:
    """The lines that open a file or pipe of text in the locale's encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        keywords = {one.arg: one.value for one in node.keywords}
        if "encoding" in keywords or ast.unparse(node.func) == "formatter.write_text":  # click's
            continue
        is_method = isinstance(node.func, ast.Attribute)
        on_path = name in TEXT and is_method and len(node.args) == TEXT[name]
        if on_path or (name in PROCESS and "text" in keywords):
            yield node.lineno
        elif name in ("open", "fdopen"):  # the mode of a path's method comes first
            mode = node.args[0 if is_method and name == "open" else 1 :][:1]
            if mode and isinstance(mode[0], ast.Constant) and MODE.fullmatch(str(mode[0].value)):
                yield node.lineno


def test_texts_name_their_encoding() -> None:
    """The locale's is cp1252 on Windows."""
    texts = {path: path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    texts = {path: text for path, text in texts.items() if OPENING.search(text)}
    assert len(texts) > 50
    found = {
        str(path.relative_to(ROOT)): lines
        for path, text in texts.items()
        if (lines := [*texts_without_encoding(text)])
    }
    assert found == {}


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("path.read_text()", True),
        ("path.read_text(errors='replace')", True),
        ("path.write_text(text)", True),
        ("open(path, 'w')", True),
        ("os.fdopen(1, 'w')", True),
        ("subprocess.run(words, text=True)", True),
        ("path.open('a')", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text, encoding='utf-8')", False),
        ("path.open('rb')", False),
        ("write_text(table, out)", False),
    ],
)
def test_a_text_without_encoding_is_found(code: str, is_found: bool) -> None:
    assert [*texts_without_encoding(code)] == [1] * is_found


def test_modules_of_posix_are_imported_where_they_are_used() -> None:
    eager = re.compile(rf"^(import|from) ({'|'.join(MODULES)})\b", re.MULTILINE)
    assert eager.search("import os\nimport fcntl")
    assert [path for path in SOURCE.rglob("*.py") if eager.search(path.read_text())] == []
