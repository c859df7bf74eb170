"""What every recipe does: lower, save, run with the Python runtime, note what was run."""

from __future__ import annotations

import json
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import executorch.version
import numpy as np
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeProgramManager, to_edge, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch.export import ExportedProgram, export
from torch.utils import _pytree as pytree

Programs = ExportedProgram | dict[str, ExportedProgram]


@dataclass(frozen=True, slots=True)
class Call:
    """One set of inputs for one method, executed ``repeat`` times in a row."""

    inputs: tuple[Any, ...]
    method: str = "forward"
    repeat: int = 1


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own, so that one tensor's numbers do not depend on another's."""
    return torch.Generator().manual_seed(seed)


def exported(model: torch.nn.Module, inputs: tuple[Any, ...], **options: Any) -> ExportedProgram:
    """Strict export: its stack traces name the model's own lines only."""
    return export(model.eval(), inputs, strict=True, **options)


def portable(programs: Programs) -> EdgeProgramManager:
    """No delegate: every operator runs on a portable kernel."""
    return to_edge(programs, generate_etrecord=True)


def xnnpack(programs: Programs) -> EdgeProgramManager:
    """What XNNPACK takes is delegated, the rest stays on portable kernels."""
    return to_edge_transform_and_lower(
        programs, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )


def eager(model: torch.nn.Module, *calls: Call) -> list[list[Any]]:
    """What PyTorch gives for the same calls, flattened as the runtime flattens its outputs."""
    with torch.no_grad():
        return [
            pytree.tree_leaves(
                getattr(model, call.method)(*pytree.tree_map(_detached, call.inputs))
            )
            for call in calls
        ]


def _detached(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


@dataclass(slots=True)
class Workbench:
    """The folder of an artefact in the making, and the notes that become its ``meta.json``."""

    folder: Path
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def pte(self) -> Path:
        """The program; nothing runs before it is saved."""
        return self.folder / "program.pte"

    def save(self, edge: EdgeProgramManager, config: Any = None) -> Any:
        """Emit the program and the ETRecord that the export flow has collected."""
        program = edge.to_executorch(config)
        self.pte.write_bytes(program.buffer)
        program.get_etrecord().save(str(self.folder / "etrecord.bin"))
        return program

    def run(
        self,
        *calls: Call,
        debug_bytes: int = 0,
        etdump: str = "etdump.etdp",
        debug_buffer: str = "debug_output.bin",
    ) -> list[list[Any]]:
        """Execute all calls under one ETDump; the last outputs of each call.

        ``debug_bytes`` is the size of the debug buffer: the runtime writes all of it to the
        file, used or not, and aborts when it is too small.
        """
        module = _load_for_executorch(
            str(self.pte), enable_etdump=True, debug_buffer_size=debug_bytes
        )
        outputs: list[list[Any]] = []
        for call in calls:
            flat = tuple(pytree.tree_leaves(call.inputs))
            for _ in range(call.repeat):
                result = module.run_method(call.method, flat)
            outputs.append(result)
        module.write_etdump_result_to_file(
            str(self.folder / etdump), str(self.folder / debug_buffer) if debug_bytes else None
        )
        return outputs

    def profile(
        self, model: torch.nn.Module, *calls: Call, debug_bytes: int, timing: bool = True
    ) -> None:
        """The usual end of a recipe: the dump with tensors, one without, and all values."""
        outputs = self.run(*calls, debug_bytes=debug_bytes)
        if timing:
            self.run(*calls, etdump="timing.etdp")
        self.keep(calls, outputs, eager(model, *calls))

    def keep(
        self,
        calls: Sequence[Call],
        outputs: Sequence[Sequence[Any]],
        reference: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        """Store inputs, outputs and reference, and note the order of the runs."""
        cases = _numbered(calls)
        flat = [pytree.tree_leaves(call.inputs) for call in calls]
        _save_npz(self.folder / "inputs.npz", cases, flat)
        _save_npz(self.folder / "outputs.npz", cases, outputs)
        if reference is not None:
            _save_npz(self.folder / "reference.npz", cases, reference)
        by_method: dict[str, list[Any]] = {}
        for call in calls:
            by_method.setdefault(call.method, []).append(call.inputs)
        torch.save(by_method, self.folder / "inputs.pt")
        self.notes["runs"] = [
            [method, case, call.repeat] for (method, case), call in zip(cases, calls, strict=True)
        ]

    def finish(self) -> None:
        """Write ``meta.json``, the last file of every artefact."""
        dump = self.folder / "etdump.etdp"
        events = events_per_run(dump.read_bytes()) if dump.exists() else []
        facts = {
            "torch": torch.__version__,
            "executorch": executorch.version.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "dump_runs": len(events),
            "dump_events": sum(events),
        }
        (self.folder / "meta.json").write_text(json.dumps(facts | self.notes, indent=1) + "\n")


def _numbered(calls: Sequence[Call]) -> list[tuple[str, int]]:
    """``(method, case)`` of each call; cases count per method."""
    seen: dict[str, int] = {}
    cases = []
    for call in calls:
        case = seen.get(call.method, 0)
        seen[call.method] = case + 1
        cases.append((call.method, case))
    return cases


def _save_npz(
    path: Path, cases: Sequence[tuple[str, int]], values: Sequence[Sequence[Any]]
) -> None:
    """Values that numpy has no dtype for (bfloat16) are left out; ``inputs.pt`` has them."""
    arrays = {
        f"{method}/{case}/{index}": np.asarray(value)
        for (method, case), row in zip(cases, values, strict=True)
        for index, value in enumerate(row)
        if getattr(value, "dtype", None) is not torch.bfloat16
    }
    np.savez(path, **arrays)


def events_per_run(dump: bytes) -> list[int]:
    """The number of events in each run of an ETDump file.

    Counted by hand, a few table look-ups deep, so that a test of any reader has a number that
    came from no reader.
    """
    data = dump[4:]

    def word(at: int) -> int:
        return int(struct.unpack_from("<I", data, at)[0])

    def slot(table: int, index: int) -> int:
        """Where a field of a table points, or 0 for an absent field."""
        vtable = table - struct.unpack_from("<i", data, table)[0]
        size = struct.unpack_from("<H", data, vtable)[0]
        entry = 4 + 2 * index
        offset = struct.unpack_from("<H", data, vtable + entry)[0] if entry < size else 0
        return table + offset + word(table + offset) if offset else 0

    runs = slot(word(0), 1)
    if not runs:
        return []
    tables = (at + word(at) for at in range(runs + 4, runs + 4 + 4 * word(runs), 4))
    return [word(events) if (events := slot(run, 3)) else 0 for run in tables]
