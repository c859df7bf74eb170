"""Vulkan's calls lead to the nodes that they were made from, on exported models."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("executorch.exir")

from etscope.analysis.profile.trace import Trace
from etscope.analysis.program.correlate import MethodSymbols, method_symbols
from etscope.analysis.program.vulkan_calls import with_vulkan_handles
from etscope.errors import EtscopeWarning
from etscope.formats.etdump.reader import read_etdump
from etscope.formats.etrecord.reader import read_etrecord
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts
from tests.support.delegate_dumps import dump_of, vulkan

FUSED = "vulkan_fused"


def symbols_of(name: str, program: Path | None = None) -> MethodSymbols:
    made = artifacts(name)
    symbols = method_symbols(read_etrecord(made.extra("etrecord.bin")), "forward")
    return with_vulkan_handles(symbols, read_pte(program or made.pte))


@pytest.mark.parametrize(("name", "known"), [(FUSED, 1.0), ("vulkan_encoder", 0.85)])
def test_no_call_has_a_wrong_node(name: str, known: float) -> None:
    delegates = [entry for _, entry in sorted(symbols_of(name).delegates.items())]
    right = total = 0
    for entry, calls in zip(delegates, artifacts(name).meta["truth"], strict=True):
        for number, handle in calls:
            given = entry.handles.get(str(number))
            if handle is not None:  # a node that Vulkan's passes made has none
                total += 1
                right += given is not None
                assert given is None or handle in given, number
    assert right >= known * total > 0


def test_events_have_the_lines_of_their_nodes() -> None:
    made, symbols = artifacts(FUSED), symbols_of(FUSED)
    ids = sorted(map(int, symbols.delegates[0].handles))
    dump = dump_of(vulkan([(f"op_{number}", "kernel", number, 100) for number in (*ids, 999)]))
    opened = read_etrecord(made.extra("etrecord.bin"))
    trace = Trace(read_etdump(dump), record=opened, program=read_pte(made.pte))
    (profile,) = trace.profiles()
    rows = {row.name: row.attribution for row in profile.rows if row.own_clock}
    for position, number in enumerate(ids):
        found = rows[f"op_{number} (kernel) #{position}"]
        assert found.nodes and found.lines, number
        assert found.debug_handles == symbols.delegates[0].handles[str(number)]
    unknown = rows[f"op_999 (kernel) #{len(ids)}"]
    assert not unknown.nodes, "an id that no call has"


def test_without_the_program_no_node_is_guessed() -> None:
    opened = read_etrecord(artifacts(FUSED).extra("etrecord.bin"))
    told = opened.delegate_map
    assert told is not None and told["forward"][0].identifiers, "what the exporter wrote"
    assert not method_symbols(opened, "forward").delegates[0].handles


def test_data_that_is_broken_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pte"
    broken.write_bytes(artifacts(FUSED).pte.read_bytes().replace(b"VH00", b"VH99", 1))
    with pytest.warns(EtscopeWarning, match="cannot read Vulkan's data for instruction 0"):
        symbols = symbols_of(FUSED, broken)
    assert not symbols.delegates[0].handles
