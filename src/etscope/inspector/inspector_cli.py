"""``python3 -m etscope.inspector.inspector_cli``: upstream's command with upstream's flags.

`etscope inspect` is the command made for people; this one is for scripts that know the flags.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from etscope.errors import MissingDataError
from etscope.inspector._inspector import Inspector, compare_results
from etscope.support.exits import exit_with
from etscope.support.optional import available
from etscope.units import TimeScale
from etscope.views.output import open_output


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a dump; write it as TSV and compare outputs when asked."""
    scales = [scale.value for scale in TimeScale]
    parser = argparse.ArgumentParser(prog="python3 -m etscope.inspector.inspector_cli")
    parser.add_argument("--etdump_path", required=True, help="the ETDump file")
    parser.add_argument("--etrecord_path", help="its ETRecord")
    parser.add_argument("--debug_buffer_path", help="its file of logged tensors")
    parser.add_argument("--tsv_path", help="write the table here, too")
    parser.add_argument(
        "--source_time_scale", choices=scales, default="ns", help="unit of the runtime's clock"
    )
    parser.add_argument(
        "--target_time_scale", choices=scales, default="ms", help="unit of the times shown"
    )
    parser.add_argument(
        "--compare_results",
        action="store_true",
        help="compare the outputs with the record's references, and plot them if matplotlib is "
        "installed",
    )
    options = parser.parse_args(arguments)
    inspector = Inspector(
        etdump_path=options.etdump_path,
        etrecord=options.etrecord_path,
        debug_buffer_path=options.debug_buffer_path,
        source_time_scale=options.source_time_scale,
        target_time_scale=options.target_time_scale,
    )
    inspector.print_data_tabular()
    if options.tsv_path:
        with open_output(options.tsv_path) as out:
            inspector.save_data_to_tsv(out)
    if options.compare_results:
        _compare(inspector)


def _compare(inspector: Inspector) -> None:
    plot = available("matplotlib") is not None
    for block in inspector.event_blocks:
        if block.name != "Execute":
            continue
        if block.reference_output is None:
            raise MissingDataError(
                "the runs of this dump have no reference outputs",
                hint="pass an ETRecord with references: from a bundled program, or from `etscope "
                "export`. With several test cases, the dump must name the one that ran: "
                "`etscope run` writes it, ExecuTorch's runner writes -1"
                if block.bundled_input_index is None
                else "the ETRecord does not have references for test case "
                f"{block.bundled_input_index}: make it with the bundled program that ran",
            )
        results = compare_results(block.reference_output, block.run_output or [], plot=plot)
        for metric, values in results.items():
            print(metric)
            for index, value in enumerate(values):
                print(f"{index:<5}{'-' if value is None else format(value, '.6g'):>12}")


if __name__ == "__main__":
    exit_with(main)
