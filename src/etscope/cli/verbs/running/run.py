"""`etscope run`: run a program on the ExecuTorch runtime and show its times and outputs."""

from __future__ import annotations

import click

from etscope.cli.options.common import (
    FILE,
    data_option,
    etrecord_option,
    output_options,
    view_options,
)
from etscope.cli.options.run import RunArguments, run_options
from etscope.cli.output.tables import OutputOptions, ViewOptions


@click.command()
@click.argument("program", type=FILE)
@run_options()
@data_option
@etrecord_option
@click.option(
    "--pools",
    is_flag=True,
    help="Find the smallest memory pools of a microcontroller build instead of measuring times.",
)
@click.option("--force", is_flag=True, help="Continue although program and record do not match.")
@view_options
@output_options
def command(
    program: str,
    options: RunArguments,
    data: str | None,
    etrecord: str | None,
    pools: bool,
    force: bool,
    view: ViewOptions,
    output: OutputOptions,
) -> int:
    """Run PROGRAM, a .pte, a .bpte or an ETRecord that holds its program, and show how long it
    and each of its instructions took.

    Latency is measured without tracing; times of instructions, and values, in separate runs. The
    test cases of a .bpte are verified: exit code 1 when an output is not as expected.

    --pools finds the smallest sizes of the method and temporary allocators' pools, of each method,
    and verifies them: the native runner succeeds in exactly these, and fails with one byte less.
    """
    from etscope.cli.output.progress import progress

    if pools:
        from etscope.run.pools import SCHEMA, pools_report, smallest_pools

        options.check_pools()
        with progress(f"running {program} in pools"):
            found = smallest_pools(
                program,
                next(iter(options.inputs), None),
                method=options.method,
                etrecord=etrecord,
                data=data,
                testset_index=options.testset_index,
                seed=options.seed,
                libraries=options.libraries,
                timeout=options.timeout,
                verify=not force,
            )
        output.write_reports([pools_report(found)], SCHEMA)
        return 0
    options.check(output)
    with progress(f"running {program}"):
        run = options.run(program, data=data, etrecord=etrecord, verify=not force)
    return options.finish(run, view, output)
