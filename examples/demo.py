"""The whole way: export a model, run it on ExecuTorch, see what each operator costs, and where.

    python examples/demo.py [FOLDER]

writes everything to FOLDER, by default demo-output/.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

RUNS = 100

INSPECT = ("inspect", "run.etdp", "--etrecord", "model.etrecord")
COMMANDS: tuple[tuple[str, ...], ...] = (
    INSPECT,
    (*INSPECT, "--by", "module"),
    (*INSPECT, "--output", "operators.csv"),
    (*INSPECT, "--output", "operators.md"),
    ("convert", "run.etdp", "--etrecord", "model.etrecord", "--output", "trace.pftrace"),
)


def main() -> int:
    default = Path(__file__).resolve().parents[1] / "demo-output"
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(exist_ok=True)
    print(f"exporting examples/keyword_spotter.py, running it {RUNS} times ...", flush=True)
    with quiet_stderr():
        export(folder)
        run(folder)
    for command in COMMANDS:
        print(f"\n$ etscope {' '.join(command)}", flush=True)
        done = subprocess.run([sys.executable, "-m", "etscope", *command], cwd=folder, check=False)
        if done.returncode:
            return done.returncode
    print(f"\nin {folder.name}/:")
    for path in sorted(folder.iterdir()):
        print(f"  {path.name:24} {path.stat().st_size:>12,} bytes")
    print("open trace.pftrace in https://ui.perfetto.dev")
    return 0


def export(folder: Path) -> None:
    """Write the program, and the record that ties its instructions to the Python source."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from keyword_spotter import SAMPLE_RATE, KeywordSpotter

    torch.manual_seed(0)
    model = KeywordSpotter().eval()
    exported = torch.export.export(model, (torch.randn(1, SAMPLE_RATE),))
    lowered = to_edge_transform_and_lower(
        exported, partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )
    program = lowered.to_executorch()
    program.save(str(folder / "model.pte"))
    program.get_etrecord().save(str(folder / "model.etrecord"))


def run(folder: Path) -> None:
    """Run the program with event tracing on, and write the dump."""
    import torch
    from executorch.runtime import Runtime
    from keyword_spotter import SAMPLE_RATE

    program = Runtime.get().load_program(folder / "model.pte", enable_etdump=True)
    method = program.load_method("forward")
    sound = torch.randn(1, SAMPLE_RATE, generator=torch.Generator().manual_seed(1))
    for _ in range(RUNS):
        method.execute([sound])
    program.write_etdump_result_to_file(str(folder / "run.etdp"), str(folder / "debug.bin"))


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Keep the notices of torch, torchao and the runtime's C++ back, unless something fails."""
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            log.seek(0)
            os.write(terminal, log.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            os.close(terminal)


if __name__ == "__main__":
    sys.exit(main())
