"""The published JSON Schemas are those of the code, and what commands write has their form.

The fixture `run` of `tests.support.cli.fixtures` validates the JSON of all other tests, too.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from etscope.analysis.check import measured
from etscope.analysis.check.compare import Outcome
from etscope.formats.conditions import conditions_here
from etscope.formats.run_json import SavedCall, conditions_to_json
from etscope.model.finding import Sureness
from etscope.model.table import Kind
from etscope.search import matrix
from etscope.search.trial import APPLY, FAILURES, LOWER, RUN
from etscope.views.tables import formats
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run, run
from tests.support.schemas import SCHEMAS, VALIDATORS, validate

__all__ = ["run"]

NAMES = ("check", "matrix", "reports", "run", "table")


def named(schema: str, *path: str) -> dict[str, Any]:
    found = SCHEMAS[schema]
    for name in path:
        found = found[name]
    return found


def test_the_schemas_are_schemas() -> None:
    assert tuple(SCHEMAS) == NAMES
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        assert schema["$id"].endswith(f"/{name}.json")


def test_versions_and_names_are_those_of_the_code() -> None:
    for name, version in (
        ("check", measured.SCHEMA),
        ("matrix", matrix.SCHEMA),
        ("table", formats.SCHEMA),
    ):
        assert SCHEMAS[name]["title"] == named(name, "properties", "schema")["const"] == version
    cell = named("matrix", "$defs", "cell")
    assert list(cell["properties"]) == [one.name for one in fields(matrix.Cell)]
    assert cell["required"] == list(cell["properties"])
    assert cell["properties"]["quantize"]["enum"] == list(matrix.SCHEMES)
    judged = [matrix.OK, matrix.OTHER_NUMBERS, matrix.NO_NUMBERS, matrix.TOO_LARGE]
    failed = [FAILURES[one] for one in (APPLY, LOWER, RUN)]
    assert cell["properties"]["result"]["enum"] == [*judged, *failed]
    column = named("table", "$defs", "column", "properties")
    assert column["kind"]["enum"] == [one.value for one in Kind]
    explanation = named("table", "$defs", "finding", "properties", "explanation", "properties")
    assert explanation["sureness"]["enum"] == [one.value for one in Sureness]
    quantities = named("check", "$defs", "quantity")["enum"]
    assert quantities == [one.name for one in measured.QUANTITIES]
    assert named("check", "$defs", "outcome")["enum"] == [one.value for one in Outcome]
    conditions = named("run", "properties", "conditions", "properties")
    assert list(conditions) == list(conditions_to_json(conditions_here()))
    call = named("run", "properties", "calls", "items", "properties")
    assert {"method", "warmup"} == {one.name for one in fields(SavedCall)} & set(call)


def test_commands_write_the_form_of_their_schema(run: Run) -> None:
    made = artifacts("cnn_xnnpack")
    files = made.etdump_timing, made.etrecord
    for words, wanted in (
        (("inspect", *files), "table"),
        (("explain", *files), "table"),
        (("diff", made.etdump_timing, made.etdump_timing), "table"),
        (("check", made.pte), "check"),
        (("info", made.pte, made.etrecord), "reports"),
        (("graph", *files), "table"),
    ):
        code, out, err = run(*words, "-f", "json")
        assert code in (0, 1, 4), err
        assert validate(json.loads(out)) == wanted, words
    findings = json.loads(run("explain", *files, "-f", "json")[1])["findings"]
    assert findings[0]["explanation"]["remedies"]


def test_a_document_of_another_form_is_refused(run: Run) -> None:
    document = json.loads(run("inspect", artifacts("cnn_xnnpack").etdump_timing, "-f", "json")[1])
    document["runs"][0]["counted"] = "13"
    with pytest.raises(ValidationError, match="'13' is not of type 'integer'"):
        validate(document)


def test_a_run_has_the_form_of_run_json(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("executorch.runtime")
    saved = tmp_path / "ran"
    assert run("run", artifacts("cnn_xnnpack").pte, "--iterations", 2, "--save", saved)[0] == 0
    content = json.loads((saved / "run.json").read_text())
    VALIDATORS["run"].validate(content)
    assert set(content) <= set(named("run", "properties"))
