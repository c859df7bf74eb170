"""Write the events of a dump as CSV: upstream's `scripts.generate_profiling_csv`.

`etscope inspect model.etdp -r model.etrecord --output operators.csv` adds lines and modules.
"""

from __future__ import annotations

import argparse

from etscope.inspector import Inspector
from etscope.support.exits import exit_with

__all__ = ["generate_csv", "main"]


def generate_csv(etdump_path: str, output: str) -> None:
    """Write `Inspector(etdump_path).to_dataframe()` to the file `output`."""
    Inspector(etdump_path).to_dataframe().to_csv(output)


def main() -> None:
    """Read the command line: `--etdump_path` and `--output`."""
    parser = argparse.ArgumentParser(description="Write the events of an ETDump as CSV")
    parser.add_argument("--etdump_path", default="./model.etdump", help="the ETDump (%(default)s)")
    parser.add_argument(
        "--output", default="./model_profiling.csv", help="the CSV file (%(default)s)"
    )
    options = parser.parse_args()
    print(f"Generating CSV from {options.etdump_path}")
    generate_csv(options.etdump_path, options.output)
    print(f"Saved CSV to {options.output}")


if __name__ == "__main__":
    exit_with(main)
