"""Tables of `docs/how-to/size.md` that no command prints have the names of `info --size`."""

from __future__ import annotations

import re

import pytest

from etscope.analysis.memory import file_parts, measured
from etscope.formats.program import delegate_data, pte
from tests.contract.source_tree import ROOT

PAGE = (ROOT / "docs/how-to/size.md").read_text()
# By the head of a table, the first cells of its rows.
TABLES = {
    head: [line.split("|")[1].strip() for line in rows.splitlines()]
    for head, rows in re.findall(r"^\| *(.+?) \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
}


def cells(head: str) -> list[str]:
    """The names in the first column of the table, each alone."""
    listed = [re.split(r"[,;] ", cell) for cell in TABLES[head]]
    return [name for names in listed for name in names]


def test_kinds_and_contents_are_those_of_programs() -> None:
    kinds = {*file_parts._KINDS, file_parts.PADDING, file_parts.UNREFERENCED}
    assert set(cells("kind | what it is")) == kinds
    contents = {
        *(pte.HEADER, pte.SEGMENTS, pte.NAMED_KEYS, pte.LAYOUTS, pte.SIGNATURE, pte.OPERATORS),
        *(pte.STACK_TRACES, pte.TENSORS, pte.TENSOR_NAMES, pte.OTHER_VALUES, pte.UNREAD),
        *(pte.INSTRUCTIONS, pte.COMPILE_SPECS, "alignment"),
    }
    assert set(cells("content | what it is, and what makes it smaller")) == contents


def test_measured_memory_has_the_owners_of_the_example() -> None:
    """The figures are those of one run: they sum to the growth as far as their digits tell."""
    example = PAGE[PAGE.index("The process grew by") :]
    cell = r"(-?[\d.]+) ([KM]i)?B"
    rows = re.findall(rf"^(\S.*?)  .*?{cell}  +[<>]?-?[\d.]+%$", example, re.MULTILINE)
    sizes = {
        name: float(number) * {"Ki": 1 / 1024, "Mi": 1, "": 0}[unit] for name, number, unit in rows
    }
    whole = sizes.pop("growth of the process")
    assert len(sizes) > 10
    assert sum(sizes.values()) == pytest.approx(whole, abs=1.0)
    text = (ROOT / "src" / "etscope" / "analysis" / "memory" / "measured.py").read_text()
    assert measured.UNEXPLAINED in sizes
    assert [name for name in sizes if f'"{name}"' not in text] == []


def test_the_backends_whose_data_is_opened_are_listed() -> None:
    names = {
        "VulkanBackend": "Vulkan",
        "EthosUBackend": "Ethos-U",
        "QnnBackend": "QNN",
        "CoreMLBackend": "Core ML",
        "CoreAIBackend": "Core AI",
        "NativeBackend": "native",
        "TensorRTBackend": "TensorRT",
        "MLXBackend": "MLX",
        "NeuropilotBackend": "MediaTek",
    }
    assert names.keys() == delegate_data._READERS.keys()
    assert set(cells("backend | opened as")) == {"XNNPACK", *names.values(), "another"}
