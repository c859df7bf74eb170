"""Write a finished check for a CI: JUnit XML, SARIF 2.1.0, and annotations of GitHub Actions.

Annotations stand at the lines of Python behind what got worse, relative to the working directory: a
repository's root. JUnit XML follows Jenkins' ``junit-10.xsd``, as `etscope.views.tables.junit`.
SARIF is OASIS' "Static Analysis Results Interchange Format Version 2.1.0", with what GitHub's code
scanning needs: a result has a location, and its path is relative.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any, TextIO
from xml.sax.saxutils import escape

from etscope._version import __version__
from etscope.analysis.check.compare import SHOWN, Outcome, Row
from etscope.analysis.check.measured import QUANTITIES
from etscope.analysis.check.report import Checked
from etscope.views.tables.cells import visible
from etscope.views.tables.junit import attributes, counts

_PAGE = "https://etscope.github.io/etscope/how-to/check/"
_LEVELS = {Outcome.WORSE: "error", Outcome.CANNOT_TELL: "warning"}

Place = tuple[str, int]  # a file, and its line


def _message(row: Row) -> str:
    """Return a row as a sentence: "program bytes: worse, 410 KiB -> 671 KiB, +63.6% …"."""
    values = " -> ".join(text or "unknown" for text in row.texts)
    text = f"{row.title}: {row.outcome.value}, {values}"
    text += f", {row.change}" if row.change else ""
    text += f" (threshold {row.limit.text})"
    return f"{text}; {row.reason}" if row.reason else text


def _place(source: str | None) -> Place | None:
    """Return the file and the line of a part."""
    path, _, line = (source or "").rpartition(":")
    return (_local(path), max(1, int(line))) if path and line.isdigit() else None


def _local(path: str) -> str:
    """Return the longest end of a path that exists here, as the export may have run elsewhere; or
    the path itself."""
    here, parts = Path.cwd().resolve(), PurePath(path).parts
    with suppress(OSError, ValueError):  # a name that no file system has
        for end in (PurePath(*parts[start:]) for start in range(len(parts))):
            found = (here / end).resolve()
            if found.is_file() and found.is_relative_to(here):
                return found.relative_to(here).as_posix()
    return PurePath(path).as_posix()


def _places(row: Row) -> list[Place]:
    """Return the places of what made a row worse, each once."""
    found = (_place(part.source) for part in row.parts)
    return list(dict.fromkeys(place for place in found if place is not None))


def _told(checked: Checked) -> Iterator[tuple[Row, str]]:
    """Yield the rows that are worse or cannot be told, with their level."""
    for row in checked.rows:
        level = _LEVELS.get(row.outcome)
        if level is not None:
            yield row, level


# -- annotations: "::error file=net.py,line=12,title=…::message". GitHub shows ten of a step, so
# those of one line are one.


def write_github(checked: Checked, out: TextIO) -> None:
    """Write commands of a workflow, then the headline."""
    lines: dict[tuple[str, Place | None], list[str]] = {}
    for row, level in _told(checked):
        places: list[Place | None] = [*_places(row)]
        for place in places or [None]:
            parts = [part for part in row.parts if place in (None, _place(part.source))]
            shown = [
                " ".join(filter(None, (part.name, part.module and f"in {part.module}", part.text)))
                for part in parts
            ]
            text = f"{_message(row)}: {', '.join(shown)}" if shown else _message(row)
            lines.setdefault((level, place), []).append(text)
    for (level, place), texts in lines.items():
        where = {} if place is None else {"file": place[0], "line": str(place[1])}
        properties = {**where, "title": "etscope check"}
        words = ",".join(f"{name}={_escaped(one, ':,')}" for name, one in properties.items())
        message = "%0A".join(map(_escaped, texts))
        out.write(f"::{level} {words}::{message}\n")
    out.write(f"{visible(checked.headline)}\n")


def _escaped(text: str, more: str = "") -> str:
    """Escape text as the workflow commands of GitHub do; more: of a property."""
    text = visible(text)
    for char in f"%{more}":
        text = text.replace(char, f"%{ord(char):02X}")
    return text


# -- SARIF


def write_sarif(checked: Checked, out: TextIO) -> None:
    """Write one run with a rule for each quantity, and a result for each row that is not a pass."""
    rules = [
        {
            "id": one.name,
            "name": one.option,
            "shortDescription": {"text": f"{one.title}, threshold {one.limit}"},
            "helpUri": _PAGE,
        }
        for one in QUANTITIES
    ]
    driver = {
        "name": "etscope check",
        "semanticVersion": __version__.partition("+")[0].partition(".dev")[0],
        "informationUri": _PAGE,
        "rules": rules,
    }
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the repository's root"}}},
        "results": [_result(checked, row, level) for row, level in _told(checked)],
        "columnKind": "utf16CodeUnits",
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    }
    out.write(json.dumps(document, indent=1) + "\n")


def _result(checked: Checked, row: Row, level: str) -> dict[str, Any]:
    names = [one.name for one in QUANTITIES]
    # A result without a line stands at the file that was checked.
    files = [one for name, one in reversed([*checked.new.paths.items()]) if name != "run"]
    places = _places(row) or [
        found for found in map(_place, (f"{one}:1" for one in files)) if found
    ]
    locations = [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": _uri(place[0]), "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": place[1]},
            }
        }
        for place in places[:SHOWN]
    ]
    command = checked.command(row)
    message = _message(row) + ("" if command is None else f". More: {command}")
    return {
        "ruleId": row.quantity.name,
        "ruleIndex": names.index(row.quantity.name),
        "level": level,
        "message": {"text": visible(message)},
        "locations": locations,
        "partialFingerprints": {"quantity/v1": visible(f"{row.quantity.name}:{row.method or ''}")},
    }


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.lstrip("/"), errors="backslashreplace")


# -- JUnit


def write_junit(checked: Checked, out: TextIO) -> None:
    """Write one suite with a case for each row: a failure is worse; an error cannot be told, unless
    that is allowed; other cases without a verdict are skipped."""
    cases = [_case(checked, row) for row in checked.rows]
    numbers = counts(cases)
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    own = {name: number for name, number in numbers.items() if name != "skipped"}
    out.write(f"<testsuites{attributes(name='etscope check', **own)}>\n")
    base = "" if checked.base is None else checked.base.name
    out.write(f"  <testsuite{attributes(name=f'{base} -> {checked.new.name}', **numbers)}>\n")
    out.writelines(case for _, case in cases)
    out.write("  </testsuite>\n</testsuites>\n")


def _case(checked: Checked, row: Row) -> tuple[str, str]:
    kind = {Outcome.WORSE: "failure", Outcome.OK: "passed"}.get(row.outcome, "skipped")
    if row.outcome is Outcome.CANNOT_TELL and not checked.allows_unknown:
        kind = "error"
    text = _message(row)
    lines = [
        text,
        *(" · ".join(filter(None, (p.name, p.text, p.module, p.source))) for p in row.parts),
    ]
    body = escape("\n".join(map(visible, lines)))
    head = attributes(classname="etscope.check", name=row.title, time="0")
    inner = [f"    <testcase{head}>\n"]
    if kind in ("failure", "error"):
        about = attributes(message=text, type=row.outcome.value)
        inner.append(f"      <{kind}{about}>{body}</{kind}>\n")
    elif kind == "skipped":
        inner.append(f"      <skipped{attributes(message=text)}/>\n")
    inner.append(f"      <system-out>{body}</system-out>\n    </testcase>\n")
    return kind, "".join(inner)
