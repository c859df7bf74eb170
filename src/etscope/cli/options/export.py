"""Options of an export, and the export itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from etscope.backends import BACKENDS, check_options, chosen
from etscope.backends.registry.export_options import PASSES
from etscope.cli.options.common import (
    COUNT,
    FILE,
    POSITIVE,
    Function,
    add_options,
    file_option,
    pairs_option,
)
from etscope.cli.settings import Setting, setting, switch
from etscope.cli.verb import Verb
from etscope.errors import UsageError

if TYPE_CHECKING:
    from etscope.export import Exported, Source

RUN_HERE = ("portable", "xnnpack")  # in every runtime that pip installs

inputs_or_types_option = click.option(
    "--inputs",
    "--input",
    "-i",
    type=FILE,
    metavar="FILE|TYPE[SIZE,…]",
    multiple=True,
    help="A file of inputs (.pt, .npz, .npy, .safetensors), or the type and size of an input. "
    "Types: float32[1,3,224,224], ids=int64[1,16], or with a dynamic size "
    "float32[b=1..8,3,224,224]. Repeatable: a type for each parameter of forward, in order; with "
    "run, a file for each call.",
)
seed_option = setting(
    "seed",
    type=COUNT,
    default=0,
    help="Seed of PyTorch's random numbers, set before the model is created.",
)
strict_option = switch(
    "strict", None, "Export in strict mode. Default: strict, then non-strict with a warning."
)


class _BackendNames(click.types.StringParamType):
    """Names of backends, separated by commas. runs_here: only backends of this machine."""

    def __init__(self, runs_here: bool) -> None:
        self.runs_here = runs_here

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the names. Raises `UsageError` for an unknown backend."""
        names = super().convert(value, param, ctx)
        chosen(names)
        if self.runs_here and names not in RUN_HERE:
            raise UsageError(
                f"programs for {names} do not run on this machine",
                hint=f"--backend {' or '.join(RUN_HERE)}",
            )
        return names

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, begun = incomplete.rpartition(",")
        names = [name for name in BACKENDS if name.startswith(begun)]
        return [CompletionItem(f"{before}{comma}{name}") for name in names]


def backend_option(
    default: str | None, help: str = "Backend of the operators.", *, runs_here: bool = False
) -> Callable[[Any], Any]:
    """Return the option `--backend`. runs_here: only backends of this machine."""
    known = f"One or more, in order: {', '.join(BACKENDS)}, or a backend of another package."
    return click.option(
        "--backend",
        metavar="NAME[,NAME…]",
        default=default,
        show_default=default is not None,
        type=_BackendNames(runs_here),
        help=f"{help} {known}",
    )


backends_option = click.option(
    "--backend",
    "backends",
    metavar="NAME[,NAME…]",
    multiple=True,
    default=RUN_HERE,
    type=_BackendNames(False),
    help=f"Backend, repeatable; or several in order: {', '.join(BACKENDS)}.",
)
each_thread_count_option = click.option(
    "--threads",
    type=POSITIVE,
    multiple=True,
    metavar="N",
    help="Number of runtime threads, repeatable. Default: 1 and the number of processors.",
)
backend_options_option = pairs_option(
    "--backend_options",
    cls=Setting,
    takes_dotted=True,
    metavar="BACKEND.KEY=VALUE",
    help="Option of a backend, as vulkan.force_fp16=true. In a file: a table with the name of the "
    "backend. The error for an unknown option lists the known ones.",
)
_SCHEMES = ("int8", "8da4w", "8da8w")
quantize_option = click.option(
    "--quantize",
    "-q",
    is_flag=False,
    flag_value="int8",
    type=click.Choice(_SCHEMES),
    metavar="[SCHEME]",
    help="Quantize to int8, or to SCHEME: 8da4w or 8da8w. int8 uses the backend's quantizer. 8da4w "
    "and 8da8w (XNNPACK) quantize the weights of linear layers to 4 or 8 bits.",
)
embeddings_option = setting(
    "quantize_embeddings",
    type=click.Choice(("4", "8")),
    callback=lambda ctx, param, value: value and int(value),
    help="Bits of each weight of the embeddings.",
)
group_size_option = setting(
    "group_size",
    type=int,
    metavar="N",
    help="Number of 4-bit weights that share a scale. Default: 32.",
)


def _selectors(ctx: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Any:
    """Return the texts. Raises `UsageError` for a wrong selector before the model is loaded."""
    from etscope.model.selector import Selector

    for text in texts:
        Selector(text)
    return texts


keep_float_option = setting(
    "keep_float",
    metavar="SELECTOR",
    multiple=True,
    callback=_selectors,
    help="Keep matching operators in float with --quantize: 'op:conv* and module:head'. "
    "Repeatable.",
)
calibration_option = file_option(
    "--calibration",
    cls=Setting,
    multiple=True,
    help="Inputs that fix the int8 ranges, one set in each FILE. Repeatable. Default: the example "
    "inputs.",
)
float_model_option = setting(
    "float_model",
    metavar="MODEL",
    help="The float model of a MODEL that is already quantized. The record keeps it, so that "
    "etscope numerics can show the cost of quantization.",
)

passes_option = setting(
    "passes",
    metavar="NAME",
    multiple=True,
    type=click.Choice(PASSES),
    help="Apply a pass. Before tracing: to_float32 (model and inputs), channels_last (inputs of "
    "images). Before lowering: fuse_sdpa (attention as products and one softmax), fold_constants "
    "(compute now what depends on weights only), fold_batch_norms (into the convolution after "
    "each), batch_loops (the steps of an unrolled loop at once). In lowering: remove_dead_copies, "
    "remove_transposes, cancel_qdq (quantization to the same numbers), keep_linear (for an "
    "optimized kernel), reinplace (write into buffers). "
    "Repeatable.",
)


class ExportCommand(Verb):
    """A command with `--quantize`, where the SCHEME is optional also before MODEL."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put int8 after a `--quantize` without a scheme."""
        given: list[str] = []
        for index, word in enumerate(args):
            given.append(word)
            following = args[index + 1 : index + 2]
            if word in ("-q", "--quantize"):
                # A MODEL with the form of a scheme is an existing folder, of another name.
                has_scheme = any(
                    one in _SCHEMES or (one.isalnum() and not Path(one).exists())
                    for one in following
                )
                given += [] if has_scheme else ["int8"]
        return super().parse_args(ctx, given)


language_model_options = (
    setting(
        "context",
        type=int,
        metavar="N",
        help="Context length of a language model, in tokens. Default: the model's, at most 2048.",
    ),
    setting(
        "prompt",
        metavar="dynamic|one-token|N",
        help="Tokens per call of a language model: any number, one, or N (a prefill method of N "
        "tokens, and a decode method). Default: dynamic; one-token for speech.",
    ),
    setting(
        "logits",
        type=click.Choice(("last", "all")),
        help="Which tokens of a call get logits. Default: the last; with a prompt of N tokens, "
        "all.",
    ),
    setting(
        "sdpa",
        type=click.Choice(("plain", "custom")),
        help="Attention of a causal language model. plain: PyTorch operators, which read the whole "
        "cache. custom: ExecuTorch's llama::custom_sdpa, which reads the filled part. "
        "Default: plain.",
    ),
)


def export_options(function: Function) -> Function:
    """Add the options and settings of an export: parameters of `exported`, without `--inputs` and
    the seed."""
    options = (
        backend_option("portable"),
        backend_options_option,
        quantize_option,
        embeddings_option,
        group_size_option,
        *language_model_options,
        setting(
            "taps",
            metavar="SELECTOR",
            multiple=True,
            callback=_selectors,
            help="Return matching intermediate values as outputs: 'op:conv* and module:head'. "
            "Repeatable.",
        ),
        keep_float_option,
        calibration_option,
        float_model_option,
        passes_option,
        strict_option,
    )
    return add_options(function, options)


def load_torch(wanted_by: str) -> None:
    """Import PyTorch and ExecuTorch quietly, before the notices of user code."""
    from etscope.cli.output.progress import progress
    from etscope.support.optional import require
    from etscope.support.quiet import quiet

    with progress("loading PyTorch and ExecuTorch"), quiet():
        require("torch", wanted_by=wanted_by)
        require("executorch.exir", wanted_by=wanted_by)


def inputs_by_kind(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the types and sizes among the values of `--inputs`, and the files."""
    types = [text for text in texts if text.endswith("]") and not Path(text).exists()]
    return types, [text for text in texts if text not in types]


def exported(
    model: str,
    *,
    inputs: Sequence[str],
    seed: int,
    calibration: Sequence[str],
    backend: str,
    float_model: str | None = None,
    **options: Any,
) -> tuple[Source, Exported]:
    """Load a model by name and export it.

    inputs: a file of example inputs, or their types and sizes. options: go to `Source.export`, with
    the options of backends; the options of a language model go to `LanguageModel`.
    """
    import logging
    import sys
    from contextlib import redirect_stdout

    from etscope.cli.output.progress import progress
    from etscope.export import check_model_name, load_model
    from etscope.support.quiet import quiet
    from etscope.support.stages import stage, stage_at_work

    for name in filter(None, (model, float_model)):
        check_model_name(name)
    types, files = inputs_by_kind(inputs)
    if files[bool(not types) :]:
        raise UsageError(
            f"--inputs takes one file, or a type for each input, not {' and '.join(inputs)}"
        )
    file = files[0] if files else None
    backends = chosen(backend, options.get("backend_options") or {})
    options["quantize"] = options.get("quantize") or False
    check_options(backends, options["quantize"] == "int8")
    names = ("context", "prompt", "logits", "sdpa")
    generation = {name: options.pop(name) for name in names}
    load_torch("export")
    with progress(f"loading {backend}"), quiet():
        for one in backends:
            one.check_packages()
    options["backend"] = backend
    # torchao registers enums again that other packages registered, and logs each one.
    logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
    with progress(f"loading {model}"), redirect_stdout(sys.stderr), stage("load the model"):
        source = load_model(model, inputs=file, seed=seed).generating(**generation)
        source = source.with_inputs(types)
        sets = [source.read_inputs(one) for one in calibration] or None
        if float_model is not None:
            options["float_model"] = load_model(float_model, inputs=file, seed=seed).model
    with progress(f"exporting {source.name}", stage_at_work), quiet():
        found = source.export(calibration=sets, **options)
    more = [*(word for text in inputs for word in ("--inputs", text)), *_settings(seed, generation)]
    more += [word for file in calibration for word in ("-X", f"calibration={file}")]
    found.record.export_words += tuple(more)
    return source, found


def _settings(seed: int, generation: Mapping[str, Any]) -> list[str]:
    given = {"seed": seed or None, **generation}
    texts = [f"{name}={value}" for name, value in given.items() if value is not None]
    return [word for text in texts for word in ("-X", text)]
