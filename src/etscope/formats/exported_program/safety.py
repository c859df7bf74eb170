"""Refuses programs of ETRecords that would run code when torch rebuilds them.

A record can come from anywhere. What its programs may say is in `program_rules`; here is where they
are: JSON in the record, and in it those of delegates, with their weights, as text. Reading graphs
without torch needs none of this: nothing is evaluated there.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

from etscope.errors import reading
from etscope.formats.exported_program.exported_json import (
    Json,
    find_payloads,
    parse_json,
    without_payloads,
)
from etscope.formats.exported_program.rules import RECORD_RULES, check_values
from etscope.formats.torch_files.torch_archive import FAKE_TENSOR, fake_tensors, read_tensors


def check_program(content: memoryview, siblings: Iterable[memoryview], *, strict: bool) -> None:
    """Check the JSON of a program with the programs and weights of delegates in it, and the
    members beside it (`torch.save` files: a tensor without data has symbolic sizes of its own).

    With `strict`, all pickles must be such that `torch_archive` reads them, for releases of
    ExecuTorch (1.2 and before) that unpickle whatever they find.

    Raises `FormatError` that names what is not allowed.
    """
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, strict)
        if strict:  # nothing is cut out: which payloads are weights is told by their keys alone
            for text in check_values(parse_json(content), RECORD_RULES):
                _check_tensors(_decoded(text.encode()), strict)
            return
        payloads = [bytes(content[run.start : run.end]) for run in find_payloads(content)]
        weights = check_values(parse_json(without_payloads(content)), RECORD_RULES)
        for encoded in (*payloads, *(text.encode() for text in weights)):
            data = _decoded(encoded)
            if bytes(data[:2]) == b"PK" or FAKE_TENSOR in bytes(data):
                _check_tensors(data, strict)


def check_plain(program: Json, siblings: Iterable[memoryview]) -> bool:
    """As `check_program`, of JSON that is parsed and has no long payloads. False if there are
    programs of delegates in it all the same, which are not checked."""
    with reading("ETRecord"):
        for data in siblings:
            _check_tensors(data, False)
        return not check_values(program, RECORD_RULES)


def _decoded(encoded: bytes) -> memoryview:
    """What base64 stands for, decoded as torch does: other characters are passed over. Nothing for
    what torch refuses."""
    try:
        return memoryview(base64.b64decode(encoded))
    except ValueError:
        return memoryview(b"")


def _check_tensors(data: memoryview, strict: bool) -> None:
    if strict and len(data):
        read_tensors(data)
    for tensor in fake_tensors(data):
        check_values(tensor.description, RECORD_RULES)
