"""A failing piece as a folder that fails by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

from etscope.bisect import _repro_script
from etscope.bisect._check import LOWER, Answer, CommandCheck
from etscope.bisect._probe import Probe, write_samples
from etscope.errors import EtscopeWarning, ExportFailure, RuntimeFailure
from etscope.formats.bytes.atomic_write import make_folder
from etscope.formats.program.pte import read_pte
from etscope.model.pieces import Piece

SCRIPT = "repro.py"


def write_repro(folder: Path, probe: Probe, piece: Piece, answer: Answer) -> Path:
    """Write the piece, its program, its values and a script, and see the script fail.

    Raises `RuntimeFailure` when it does not.
    """
    from etscope.bridge.programs.subprograms import save_piece

    place = make_folder(folder)
    cut, values = probe.cut(piece)
    try:
        save_piece(cut.program, place / "piece.pt2")
    except ExportFailure as error:
        if answer.kind == LOWER:  # without the piece there is nothing to lower again
            raise
        warnings.warn(f"no piece.pt2: {error.message}", EtscopeWarning, stacklevel=2)
    quantized = False
    if answer.kind != LOWER:
        program = probe.lower(cut)
        (place / "program.pte").write_bytes(program)
        quantized = _needs_quantized_kernels(program)
    samples = write_samples(place, values)
    settings: dict[str, Any] = {
        "kind": answer.kind,
        "backend": probe.backend,
        "nodes": probe.pieces.names(piece),
        "outputs": list(cut.outputs),
        "samples": [{"inputs": one.name, "expected": two.name} for one, two in samples],
        "quantized_kernels": quantized,
    }
    if isinstance(probe.check, CommandCheck):
        settings["command"] = probe.check.command
    else:
        settings["metric"] = probe.check.metric.name
        settings["better"] = probe.check.metric.better
        settings["tolerance"] = str(probe.check.tolerance)
    (place / "repro.json").write_text(json.dumps(settings, indent=1) + "\n")
    script = place / SCRIPT
    script.write_text(Path(_repro_script.__file__).read_text())
    _confirm(script)
    return script


def _needs_quantized_kernels(program: bytes) -> bool:
    return any(
        operator.name.startswith("quantized_decomposed::")
        for method in read_pte(program).methods
        for operator in method.operators
    )


def _confirm(script: Path) -> None:
    """See the script fail in a process of its own, and not because of an error in it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script.resolve())],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 1 and any(line.startswith("FAILS") for line in done.stdout.splitlines()):
        return
    last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
    raise RuntimeFailure(
        f"the piece fails here, and {script} does not (exit code {done.returncode})",
        log=last,
        hint="the failure may depend on more than the piece; its files are left to look at",
    )
