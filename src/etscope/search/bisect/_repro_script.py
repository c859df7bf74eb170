"""Reproduce a failure that `etscope bisect` found. Needs torch and executorch, nothing else.

    python repro.py            runs program.pte on the inputs next to it and compares
    python repro.py --lower    lowers piece.pt2 again first, and runs that

Exits with 1 and prints how when it still fails; with 0 when it does not.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
METRICS = (
    *("snr", "sqnr", "psnr", "cosine_similarity", "mse", "rms", "l1", "mae", "max_abs"),
    *("max_rel", "ulp", "out_of_tolerance"),
)


def main() -> int:
    settings = json.loads((HERE / "repro.json").read_bytes())
    again = "--lower" in sys.argv[1:]
    if settings["kind"] == "run" and "--child" not in sys.argv[1:]:
        child = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child"], check=False)
        if child.returncode:
            print(f"FAILS: the runtime fails (exit code {child.returncode})")
        return 1 if child.returncode else 0
    if settings["kind"] == "lower":
        try:
            lowered(settings)
        except Exception as error:
            print(f"FAILS: the piece cannot be lowered: {type(error).__name__}: {error}"[:2000])
            return 1
        print("good: the piece can be lowered")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        program = HERE / "program.pte"
        if again:
            program = Path(folder) / "program.pte"
            program.write_bytes(lowered(settings))
        if settings["kind"] == "command":
            return run_command(settings, program)
        return compare(settings, program)


def compare(settings: dict[str, Any], program: Path) -> int:
    code = 0
    for sample in settings["samples"]:
        outputs = execute(settings, program, load(sample["inputs"]))
        for name, expected, got in zip(
            settings["outputs"], load(sample["expected"]), outputs, strict=True
        ):
            if not expected.numel():
                continue
            number = measured(settings["metric"], expected, got)
            lower = settings["better"] == "lower"
            tolerance = float(settings["tolerance"])
            wrong = math.isnan(number) or (number > tolerance if lower else number < tolerance)
            word = "FAILS" if wrong else "good"
            print(f"{word}: {name}: {settings['metric']} = {number:g} (tolerance {tolerance:g})")
            code = 1 if wrong else code
    return code


def run_command(settings: dict[str, Any], program: Path) -> int:
    for sample in settings["samples"]:
        files = {
            "{program}": program,
            "{inputs}": HERE / sample["inputs"],
            "{expected}": HERE / sample["expected"],
        }
        words = shlex.split(settings["command"])
        for name, path in files.items():
            words = [word.replace(name, str(path)) for word in words]
        status = subprocess.run(words, check=False).returncode
        if not 0 <= status <= 125:
            print(f"the command itself failed (exit status {status})")
            return 2
        if status not in (0, 125):
            print(f"FAILS: the command's exit status is {status}")
            return 1
    print("good: the command's exit status is 0")
    return 0


def load(name: str) -> list[Any]:
    """The tensors named 0, 1, … of a file."""
    import numpy as np
    import torch

    if name.endswith(".npz"):
        with np.load(HERE / name) as file:
            return [torch.from_numpy(file[str(number)]) for number in range(len(file.files))]
    from safetensors.torch import load_file

    found = load_file(HERE / name)
    return [found[str(number)] for number in range(len(found))]


def execute(settings: dict[str, Any], program: Path, inputs: list[Any]) -> list[Any]:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    if settings["quantized_kernels"]:
        import executorch.kernels.quantized  # noqa: F401
    module = _load_for_executorch(str(program))
    return [value.clone() for value in module.forward(inputs)]


def lowered(settings: dict[str, Any]) -> bytes:
    import executorch.exir  # registers operators that the piece may have
    import torch

    piece = torch.export.load(HERE / "piece.pt2")
    if settings["backend"] == "portable":
        edge = executorch.exir.to_edge(piece)
    elif settings["backend"] == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        edge = executorch.exir.to_edge_transform_and_lower(
            piece, partitioner=[XnnpackPartitioner()]
        )
    else:
        raise SystemExit(f"this script does not know the backend {settings['backend']!r}")
    buffer: bytes = edge.to_executorch().buffer
    return buffer


def measured(metric: str, expected: Any, got: Any) -> float:
    """The metric of one output; NaN for different shapes or positions of NaN."""
    if expected.shape != got.shape or (expected != expected).ne(got != got).any():
        return math.nan
    kept = expected == expected
    expected, got = expected[kept], got[kept]
    if metric == "ulp":
        return ulp(expected, got)
    import torch

    r, v = expected.to(torch.float64), got.to(torch.float64)
    same = r == v
    infinite = bool((~same & ~(r.isfinite() & v.isfinite())).any())
    if metric == "out_of_tolerance":
        close = same | ((r - v).abs() <= 1e-8 + 1e-5 * r.abs()) & r.isfinite() & v.isfinite()
        return float((~close).sum()) / close.numel() if close.numel() else 0.0
    finite = r.isfinite() & v.isfinite()
    return formula(metric, r[finite], v[finite], len(r), infinite, bool(same.all()))


def formula(metric: str, r: Any, v: Any, count: int, infinite: bool, equal: bool) -> float:
    """Compute a metric from the finite elements of both sides, `r` and `v`, among `count`
    elements.
    """
    if metric == "cosine_similarity":
        norms = float(r.norm() * v.norm())
        return 1.0 if equal else math.nan if infinite else float(r.dot(v)) / norms if norms else 0.0
    error = (r - v).abs()
    power = float((error * error).sum())
    if metric in ("snr", "sqnr", "psnr"):
        if equal or infinite:
            return math.inf if equal else -math.inf
        peak = metric == "psnr"
        signal = float((r * r).max()) * count if peak else float((r * r).sum())
        return 10 * math.log10(signal / power) if signal else -math.inf
    if equal or infinite:
        return 0.0 if equal else math.inf
    numbers = {
        "mse": power / count,
        "rms": math.sqrt(power / count),
        "l1": float(error.sum()),
        "mae": float(error.sum()) / count,
        "max_abs": float(error.max()),
        "max_rel": float((error / r.abs()).nan_to_num(0, posinf=math.inf).max()),
    }
    return numbers[metric]


def ulp(expected: Any, got: Any) -> float:
    """The largest number of steps between neighbouring floats of the type of `got`."""
    import torch

    if not got.numel():
        return 0.0
    if not got.is_floating_point():
        return float((expected.to(torch.float64) - got.to(torch.float64)).abs().max())
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
    rounded = expected.to(got.dtype)
    infinite = ~torch.isfinite(rounded.double()) | ~torch.isfinite(got.double())
    if bool((rounded.double() != got.double())[infinite].any()):
        return math.inf
    mask = (1 << (8 * got.element_size() - 1)) - 1
    counts = []
    for one in (rounded, got):
        magnitude = one.contiguous().view(bits).to(torch.int64) & mask
        counts.append(torch.where(torch.signbit(one.double()), -magnitude, magnitude))
    return float((counts[0] - counts[1]).abs().max())


if __name__ == "__main__":
    sys.exit(main())
