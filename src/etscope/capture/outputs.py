"""Compare the saved outputs of a run with the expected ones, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from etscope.analysis.check.measured import Amount, Part
from etscope.analysis.metrics import find_metric, measure
from etscope.analysis.profile.trace import Trace
from etscope.errors import UsageError
from etscope.formats.identify import BPTE, identify
from etscope.formats.program.bpte import read_program_file
from etscope.formats.program.pte import program_fingerprint
from etscope.formats.run_json import SavedCall, inputs_sha256
from etscope.formats.torch_files.tensor_files import read_tensor_file

_NO_OUTPUTS = "the run has no saved outputs: etscope run saves them"
_NO_EXPECTED = (
    "the run has no expected outputs: run MODEL, its .bpte, or a record with reference outputs"
)


def output_errors(trace: Trace) -> Sequence[Amount] | str:
    """Return the SQNR of the outputs of a saved run, by method: the median of its calls, and the
    worst of several; a sentence if nothing is there to compare.

    Expected outputs are those of the .bpte in the run's folder, of the test case with the inputs
    of the call; else the record's, for its own inputs.

    Raises the errors of the readers.
    """
    names = ("outputs.npz", "outputs.safetensors")
    folder = Path(trace.dump.path or "").parent
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None or trace.dump.path is None or trace.saved_run is None:
        return _NO_OUTPUTS
    file = read_tensor_file(path)
    outputs = dict(zip(file.names, file.values, strict=True))
    expected = dict(_expected(trace, folder))
    calls = trace.known_calls
    found: dict[str, list[Part]] = {}
    hashes: dict[str, list[str]] = {}
    for number, call in enumerate(calls):
        key = _inputs_of(call)
        wanted = expected.get((call.method, key)) if key else None
        start = f"{number}/output_" if len(calls) > 1 else "output_"
        if wanted is not None:
            device = [outputs.get(f"{start}{index}") for index in range(len(wanted))]
            worst = _worst(wanted, device)
            if worst is not None:
                found.setdefault(call.method, []).append(Part(f"call {number}", worst))
                hashes.setdefault(call.method, []).append(key or "")
    if not found:
        return _NO_EXPECTED
    return [
        amount
        for method, parts in found.items()
        for amount in _amounts(method, parts, {"inputs": " ".join(hashes[method])})
    ]


def _amounts(method: str, parts: list[Part], basis: Mapping[str, str]) -> Iterator[Amount]:
    sqnr = find_metric("sqnr")
    ranked = sorted(parts, key=lambda part: -sqnr.badness(part.value))
    yield Amount("sqnr", method, ranked[(len(ranked) - 1) // 2].value, basis=basis)
    if len(parts) > 1:
        yield Amount("worst_sample", method, ranked[0].value, tuple(ranked), basis=basis)


def _inputs_of(call: SavedCall) -> str | None:
    return None if call.inputs is None else call.inputs.fingerprint


def _expected(trace: Trace, folder: Path) -> Iterator[tuple[tuple[str, str], Sequence[Any]]]:
    """Yield expected outputs by method and hash of the inputs."""
    program = trace.recorded_program
    sha256 = None if program is None else program_fingerprint(program.source.buffer)
    for call in trace.known_calls:
        if call.inputs is not None and call.inputs.source == "record" and trace.record is not None:
            cases = (trace.record.reference_outputs() or {}).get(call.method) or []
            key = _inputs_of(call)
            if len(cases) == 1 and key is not None:
                yield (call.method, key), list(cases[0])
    for path in sorted(folder.glob("*.bpte")):
        if identify(path) == BPTE:
            own, bundle = read_program_file(path)
            if bundle is None or program_fingerprint(own.source.buffer) != sha256:
                continue
            for suite in bundle.suites:
                for case in suite.cases:
                    if case.expected_outputs:
                        yield (suite.method, inputs_sha256(case.inputs)), case.expected_outputs


def _worst(expected: Sequence[Any], device: Sequence[Any]) -> float | None:
    """Return the worst SQNR of a call's outputs; None if none is numeric."""
    try:
        pairs = zip(expected, device, strict=True)
        return find_metric("sqnr").worst(measure("sqnr", one, other) for one, other in pairs)
    except UsageError:  # of other shapes: the interface says so
        return None
