"""ETRecords of one CNN, saved in the ways upstream offers."""

from __future__ import annotations

import copy
from typing import Any

from executorch.devtools import generate_etrecord
from executorch.exir import to_edge

from tests.support.artifact_recipes.cnn import DEBUG_BYTES, RUNS, picture, small_cnn
from tests.support.artifact_recipes.workbench import Call, Workbench, eager, exported, portable


def record_variants(bench: Workbench) -> None:
    """Four records beside the same dump.

    ``etrecord.bin`` is what the export flow collects, ``with_values.bin`` has representative
    inputs and reference outputs besides, ``edge_only.bin`` has no exported program, and
    ``extra_modules.bin`` holds two more graphs.
    """
    model, call = small_cnn(), Call((picture(),), repeat=RUNS)
    program = exported(model, call.inputs)
    edge = portable(program)
    snapshot = copy.deepcopy(edge)
    lowered = bench.save(edge)
    record = lowered.get_etrecord()
    record.update_representative_inputs(list(call.inputs))
    record.update_reference_outputs({"forward": eager(model, call)})
    record.save(str(bench.folder / "with_values.bin"))
    generate_etrecord(str(bench.folder / "edge_only.bin"), snapshot, lowered)
    generate_etrecord(
        str(bench.folder / "extra_modules.bin"),
        snapshot,
        lowered,
        exported_program=program,
        extra_recorded_export_modules={"aten_dialect": program, "second_edge": to_edge(program)},
    )
    bench.profile(model, call, debug_bytes=DEBUG_BYTES)


def in_memory_record() -> Any:
    """Upstream's ETRecord of ``cnn_portable``, never saved: its maps have integer keys."""
    call = Call((picture(),))
    return portable(exported(small_cnn(), call.inputs)).to_executorch().get_etrecord()
