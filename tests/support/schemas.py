"""The published schemas of etscope's JSON, and the one that a document names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference" / "schemas"
SCHEMAS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
VALIDATORS = {name: Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
_BY_TITLE = {schema["title"]: name for name, schema in SCHEMAS.items()}


def validate(document: dict[str, Any]) -> str:
    """Validate a document of a command, and return the name of its schema: that of its "schema", or
    "reports"; "" for a form that has none."""
    title = document.get("schema", "")
    name = _BY_TITLE.get(title) or ("reports" if "reports" in document else "")
    if name:
        VALIDATORS[name].validate(document)
    return name


def validate_output(words: Sequence[str], out: str) -> None:
    """Validate what a command line has written: JSON to standard output, and the run.json of
    --save."""
    for option, value in pairwise(words):
        if option in ("-f", "--format") and value == "json" and out.startswith("{"):
            validate(json.loads(out))
        elif option == "--save" and Path(value, "run.json").is_file():
            VALIDATORS["run"].validate(json.loads(Path(value, "run.json").read_text()))
