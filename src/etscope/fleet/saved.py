"""Queries that come with etscope: files of SQL with a head that says what they answer.

    -- question: Which operators take the most time on each device?
    -- param model text = *: shell pattern of models
    -- param before text: without "=" it must be given
    -- column total_ms: of all runs
    SELECT …

A parameter is "text", "int" or "float".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from etscope.errors import UsageError

_PARAM = re.compile(r"(\w+) (text|int|float)(?: = ([^:]*))?: (.+)")
_COLUMN = re.compile(r"(\w+): (.+)")
_READ = {"text": str, "int": int, "float": float}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A `$name` of a saved query. default: as text, None when it must be given."""

    name: str
    type: str
    default: str | None
    about: str


@dataclass(frozen=True, slots=True)
class SavedQuery:
    """A query by name. columns: of its answer, name -> what it is."""

    name: str
    question: str
    parameters: tuple[Parameter, ...]
    columns: Mapping[str, str]
    sql: str

    def values(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The values of all parameters. `UsageError` for one that is unknown, missing or no number
        where one is expected."""
        names = [parameter.name for parameter in self.parameters]
        if unknown := [name for name in given if name not in names]:
            raise UsageError(
                f"{self.name} has no parameter {unknown[0]!r}",
                hint=f"parameters are: {', '.join(names) or 'none'}",
            )
        return {parameter.name: self._value(parameter, given) for parameter in self.parameters}

    def _value(self, parameter: Parameter, given: Mapping[str, str]) -> Any:
        text = given.get(parameter.name, parameter.default)
        if text is None:
            raise UsageError(
                f"{self.name} needs the parameter {parameter.name}: {parameter.about}",
                hint=f"--param {parameter.name}=VALUE",
            )
        try:
            return _READ[parameter.type](text)
        except ValueError as error:
            raise UsageError(
                f"the parameter {parameter.name} is of type {parameter.type}, not {text!r}"
            ) from error


@cache
def saved_queries() -> Mapping[str, SavedQuery]:
    """All saved queries by name."""
    folder = files("etscope.fleet") / "queries"
    found = sorted(path.name for path in folder.iterdir() if path.name.endswith(".sql"))
    return {
        name[:-4]: _parsed(name[:-4], (folder / name).read_text(encoding="utf-8")) for name in found
    }


def saved_query(name: str) -> SavedQuery:
    """The saved query of that name; `UsageError` when there is none."""
    known = saved_queries()
    if name not in known:
        raise UsageError(
            f"no saved query is called {name!r}", hint=f"there are: {', '.join(known)}"
        )
    return known[name]


def _parsed(name: str, text: str) -> SavedQuery:
    question, parameters, columns = "", [], {}
    for line in text.splitlines():
        if not line.startswith("-- "):
            break
        word, _, rest = line[3:].partition(" ")
        if word == "question:":
            question = rest
        elif word == "param" and (found := _PARAM.fullmatch(rest)):
            parameters.append(Parameter(found[1], found[2], found[3], found[4]))
        elif word == "column" and (found := _COLUMN.fullmatch(rest)):
            columns[found[1]] = found[2]
        else:
            raise ValueError(f"{name}.sql: a head line that is not understood: {line}")
    return SavedQuery(name, question, tuple(parameters), columns, text)
