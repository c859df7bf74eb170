"""`etscope generate`: generate tokens with a language model's program, and show its pace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from etscope.cli.options.common import (
    COUNT,
    FILE,
    POSITIVE,
    GivenFiles,
    as_one_parameter,
    choice_option,
    file_option,
    library_option,
    output_options,
    path_option,
    profiling_level_option,
    program_files_options,
    runner_option,
    split_values,
    threads_option,
    timeout_option,
)
from etscope.cli.options.kept_runs import NEXT, SAVE_OPTIONS, saved_run
from etscope.cli.output.tables import OutputOptions
from etscope.cli.settings import Setting, setting, switch
from etscope.cli.verb import verb

if TYPE_CHECKING:
    from etscope.run import GenerateOptions, GenerationRun

INTERRUPTED = 130
DEBUG_LEVELS = ("none", "program_outputs", "intermediate_outputs")


def _range(
    ctx: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Read two numbers, A..B, or one."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", value)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise click.BadParameter(f"{value!r} is not A..B, two numbers of calls", ctx, option)
    return first, last


@dataclass(frozen=True, slots=True)
class GenerateArguments:
    """Values of the options: those of `etscope.run.generate`, and those of the command alone."""

    of_run: GenerateOptions
    ignore_end: bool
    logits_out: Path | None
    save: Path | None
    no_save: bool

    def check(self) -> None:
        """Raise `UsageError` for options that contradict each other, before anything runs."""
        from etscope.errors import UsageError

        kept = {
            "--debug-level": self.of_run.debug_level != "none",
            "--memory": self.of_run.memory,
            "-X profiling_level": self.of_run.profiling_level != "all",
        }
        for name, is_given in kept.items():
            if is_given and not self.keeps:
                raise UsageError(
                    f"{name} needs the files of the run, which are not kept", hint="add --save DIR"
                )
        if self.of_run.end_tokens and self.ignore_end:
            raise UsageError("-X end_tokens and -X ignore_end exclude each other")
        if self.logits_out is not None and self.logits_out.suffix != ".npz":
            raise UsageError(f"logits are written as .npz, not {self.logits_out}")
        if self.logits_out is not None and not self.logits_out.parent.is_dir():
            raise UsageError(f"cannot write {self.logits_out}: there is no such folder")

    @property
    def keeps(self) -> bool:
        """True if the files of the run are kept."""
        from etscope.capture.kept_runs import KeptRuns

        return self.save is not None or not (self.no_save or KeptRuns.is_off())

    def run(self, program: str, **more: Any) -> GenerationRun:
        """Generate. `more` goes to `etscope.run.generate`."""
        from etscope.run import generate

        return generate(
            program,
            options=self.of_run,
            end_tokens=() if self.ignore_end else self.of_run.end_tokens or None,
            logits=self.logits_out is not None,
            trace=self.keeps,
            **more,
        )


_OPTIONS = (
    click.option("--prompt", metavar="TEXT", help="The prompt, as text; needs --tokenizer."),
    file_option("--tokenizer", help="The model's tokenizer.json, of the tokenizers library."),
    click.option(
        "--tokens",
        metavar="IDS",
        help="The prompt, as ids: 1,5,9, or a file of such text or .npy. -1: the place of the next "
        "of --inputs.",
    ),
    click.option(
        "--prompt-length", type=POSITIVE, metavar="N", help="A prompt of N ids drawn from the seed."
    ),
    setting("seed", type=COUNT, help="Seed of --prompt-length and of the sampler. Default: 0."),
    file_option(
        "--inputs",
        "-i",
        multiple=True,
        help="Images and sound for the encoders, in their order: .npz, .npy, .safetensors, .pt. "
        "Repeatable.",
    ),
    click.option(
        "--max-new-tokens", type=POSITIVE, metavar="N", default=128, help="Tokens to generate."
    ),
    click.option(
        "--temperature",
        type=click.FloatRange(min=0),
        metavar="X",
        default=0.0,
        help="0: take the likeliest token; else draw from softmax(logits / X).",
    ),
    setting("top_k", type=POSITIVE, metavar="N", help="Draw from the N likeliest."),
    setting(
        "top_p",
        type=click.FloatRange(min=0, min_open=True, max=1),
        metavar="X",
        help="Draw from the likeliest tokens that together have the probability X.",
    ),
    setting(
        "end_tokens",
        type=COUNT,
        multiple=True,
        metavar="ID",
        help="Stop after this id. Repeatable. Default: the program's own.",
    ),
    switch("ignore_end", False, "Do not stop at end tokens."),
    setting(
        "force_tokens",
        metavar="IDS",
        help="Take these ids, whatever the logits are (teacher forcing); as --tokens.",
    ),
    click.option("--iterations", type=POSITIVE, default=3, help="Number of timed generations."),
    click.option(
        "--warmup",
        type=COUNT,
        default=1,
        help="Number of untimed generations before the timed ones.",
    ),
    setting(
        "profiled_iterations",
        type=POSITIVE,
        default=1,
        help="Number of generations in the run that records the times of operators.",
    ),
    choice_option(
        "--debug-level", DEBUG_LEVELS, "Values to record, of one generation, in a separate run."
    ),
    setting(
        "values_at",
        callback=_range,
        metavar="A..B",
        help="Record values of these calls only, from 0. Native runner.",
    ),
    profiling_level_option,
    click.option(
        "--memory",
        is_flag=True,
        help="Measure the memory of the process by owner, in a separate run; with --save.",
    ),
    threads_option,
    library_option,
    runner_option,
    timeout_option,
    path_option("--logits_out", cls=Setting, help="Write the logits: .npz."),
    *SAVE_OPTIONS,
)


def _arguments(**values: Any) -> GenerateArguments:
    from etscope.run import GenerateOptions

    return split_values(GenerateArguments, GenerateOptions, values)


_DETAILS = """\
The prompt is --prompt with --tokenizer, --tokens, or --prompt-length; without any, the model's
first token. Times are of a run without tracing; runs of their own record the times of
operators, and values, for the run that is kept (--no-save skips them). Ctrl-C ends it after the
current call, and what was recorded stays (exit code 130).
"""


@verb(
    {
        "Prompt": ("--prompt", "--tokenizer", "--tokens", "--prompt-length"),
        "Sampling": ("--max-new-tokens", "--temperature", "-X"),
        "Run": ("--iterations", "--threads", "--debug-level", "--save", "--format"),
    },
    details=_DETAILS,
)
@click.argument("program", type=FILE)
@partial(as_one_parameter, parameter="options", make=_arguments, options=_OPTIONS)
@program_files_options
@output_options
def command(
    program: str,
    options: GenerateArguments,
    files: GivenFiles,
    output: OutputOptions,
) -> int:
    """Generate tokens with PROGRAM, a language model, and show its pace: time to first token,
    prefill and decode in tokens a second.

    \b
    etscope generate llama.pte --tokenizer tokenizer.json --prompt Hello
    etscope generate llama.pte --prompt-length 128 --max-new-tokens 64
    etscope generate llama.pte --debug-level intermediate_outputs
    """
    from etscope.cli.output.progress import progress
    from etscope.run.generation import SCHEMA

    options.check()
    with saved_run(options.save, not options.keeps, Path(program).stem, NEXT) as folder:
        with progress(f"generating with {program}"):
            run = options.run(program, **files.arguments())
        if folder is not None:
            run.save(folder)
        if options.logits_out is not None and not run.is_interrupted:
            run.save_logits(options.logits_out)
            click.echo(f"wrote {options.logits_out}", err=True)
        output.write_reports([run.report()], SCHEMA)
    return INTERRUPTED if run.is_interrupted else 0
