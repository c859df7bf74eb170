"""`etscope evaluate`: run a dataset, or a language model on a text, on the runtime and compare it
with the reference."""

from __future__ import annotations

import functools
from typing import Any

import click

from etscope.cli.options.common import (
    FILE,
    GRAPHS,
    SECONDS,
    ErrorOptions,
    GivenFiles,
    as_view,
    choice_option,
    chosen_setting,
    columns_option,
    error_options,
    given_options,
    library_option,
    limit_option,
    output_options,
    program_files_options,
    runner_option,
    threads_option,
)
from etscope.cli.options.evaluation import (
    OF_SAMPLES,
    DatasetOptions,
    TokenOptions,
    dataset_options,
    token_options,
)
from etscope.cli.output.tables import OutputOptions, ViewOptions
from etscope.cli.settings import setting, switch
from etscope.cli.verb import verb

# What the samples of a dataset have and a text has not.
_OF_METHODS = ("method", "state")
_OF_SAMPLES = (*OF_SAMPLES, *_OF_METHODS, "metric", "tolerance")


_DETAILS = """\
Shows the errors of each operator over the samples, the worst samples, and for a classifier the
samples that get another class (--top, --labels). The reference is computed from the ETRecord:
that of --etrecord, or PROGRAM.

With --tokens PROGRAM is a language model: it and the --reference are given the same text, and
their logits are compared at each token: KL divergence, flips of the likeliest token,
perplexity. A long text is cut into windows of the context; each token but the first is
predicted once. With --save the call of the first token that differs is recorded.

Exit code 1 when an operator is wrong in a sample, or in all of them together, or more samples
than --max-flips get another class; 3 when samples were skipped; 4 when none could be compared.
With --tokens, 1 beyond --max-kl or --min-agreement, or when logits have NaN.
"""


@verb(
    {
        "Samples": ("--dataset", "--max-flips"),
        "Tokens": ("--tokens", "--reference", "--max-kl"),
        "Limits": ("--metric", "--tolerance"),
        "Output": ("--format", "--output", "-X"),
    },
    details=_DETAILS,
)
@click.argument("program", type=FILE)
@program_files_options
@functools.partial(dataset_options, required=False)
@token_options
@click.option("--method", "-m", metavar="NAME", help="The method. Default: forward.")
@error_options
@chosen_setting(
    "state",
    ("fresh", "sequence"),
    "For a model with state: start each sample from the initial state, or from the state "
    "after the sample before.",
)
@library_option
@threads_option
@runner_option
@switch(
    "isolate",
    True,
    "Run samples in separate processes. Without: faster, but a crash ends everything.",
)
@setting(
    "timeout",
    type=SECONDS,
    metavar="SECONDS",
    help="Time limit of each process of the runtime, which runs up to 64 samples.",
)
@choice_option(
    "--sort", ("run", "error"), "List operators in order of execution, or the worst first."
)
@limit_option
@columns_option
@output_options
@as_view("columns", "sort", "limit")
def command(
    program: str,
    files: GivenFiles,
    dataset_options: DatasetOptions,
    token_options: TokenOptions,
    errors: ErrorOptions,
    view: ViewOptions,
    output: OutputOptions,
    **options: Any,
) -> int:
    """Run each sample of a dataset on PROGRAM, and compare its values with PyTorch, operator by
    operator.

    \b
    etscope evaluate model.etrecord --dataset samples/
    etscope evaluate model.etrecord --dataset samples.npz --labels labels.npy
    etscope evaluate llama.pte --tokens text.txt --tokenizer tokenizer.json
    """
    from etscope.cli.output.progress import counting
    from etscope.evaluation import evaluate, evaluate_tokens
    from etscope.support.quiet import quiet

    token_options.check(dataset_options.dataset, given_options(_OF_SAMPLES))
    options |= files.arguments()
    if token_options.tokens is not None:
        options = {name: value for name, value in options.items() if name not in _OF_METHODS}
        options["reference"] = token_options.opened_reference()
        with counting(f"evaluating {program}") as progress, quiet():
            agreement = evaluate_tokens(
                program,
                token_options.tokens,
                options=token_options.of_run,
                reference_graph=GRAPHS[errors.graph] if given_options(["graph"]) else None,
                progress=progress,
                **options,
            )
        return token_options.write(agreement, output, view)
    dataset_options.check(output)
    with counting(f"evaluating {program}") as progress, quiet():
        found = evaluate(
            program,
            dataset_options.dataset,
            options=dataset_options.of_run,
            progress=progress,
            **options,
            **errors.arguments(),
        )
    return dataset_options.write(found, output, view)
