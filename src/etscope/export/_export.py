"""`export()` and its result; and `keeping_partition()`, for lowerings without it."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.xnnpack_events import untaken_types
from etscope.backends import chosen
from etscope.backends.registry.export_options import ExportOptions, export_words
from etscope.errors import EtscopeWarning, FormatError, UsageError
from etscope.formats.bytes.files import atomic_write, make_folder
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import Method, ValueKind
from etscope.support.optional import require
from etscope.support.options import takes_fields
from etscope.support.shown import Shown
from etscope.support.stages import stage
from etscope.units import listed

if TYPE_CHECKING:
    from etscope.bridge.lowering.export import ModelMethods
    from etscope.bridge.lowering.partition import KeptPartition
    from etscope.etrecord import ETRecord

_NAMES = 4  # of operators, in a message

PROGRAM, RECORD, BUNDLE = ".pte", ".etrecord", ".bpte"


@dataclass(frozen=True, slots=True, eq=False)
class Exported(Shown):
    """A program, its record, and the expected outputs for its example inputs.

    program: the `ExecutorchProgramManager`.
    record: the `ETRecord`, with the program's bytes in it.
    example_inputs, reference_outputs: by method, flat: the values in the order of the program's
        own lists; a text among the inputs is None, as the program takes it.
    backend: the requested one, or several, separated by commas; None with `export_llm`, which does
        not say.
    """

    program: Any
    record: ETRecord
    example_inputs: Mapping[str, tuple[Any, ...]]
    reference_outputs: Mapping[str, tuple[Any, ...]]
    backend: str = "portable"

    def undelegated(self) -> list[str]:
        """Explain for each method why the backend took none of its operators; for a method with
        some in the backend, only if the types of tensors kept the others out.
        """
        backends = chosen(self.backend)
        if all(one.backend.partitioners is None for one in backends):
            return []
        names = [one.name for one in backends]
        who = f"the backend {names[0]}"
        if len(names) > 1:
            who = f"the backends {', '.join(names[:-1])} and {names[-1]}"
        known = " ".join(one.backend.if_untaken for one in backends if one.backend.if_untaken)
        found = []
        for method in self._methods():
            operators = [one for one in instruction_labels(method) if "::" in one]
            types = untaken_types(method) if names == ["xnnpack"] else None
            if method.delegates:
                if types is not None:
                    found.append(
                        f"{who} left {len(operators):,} operators of "
                        f"{method.name} to portable kernels. {types}"
                    )
                continue
            kinds = list(dict.fromkeys(name.partition(".")[0] for name in operators))
            unsupported = listed(kinds, _NAMES)
            why = types or known
            why = why or f"perhaps it does not support them ({unsupported}) or their types"
            found.append(
                f"{who} took no operator of {method.name}: all "
                f"{len(operators):,} run on portable kernels. {why[:1].upper()}{why[1:]}"
            )
        return found

    def _methods(self) -> list[Method]:
        """List the methods of the program, without those that return a constant."""
        methods = read_pte(self.program_bytes()).methods
        return [method for method in methods if method.name in self.example_inputs]

    def program_bytes(self) -> bytes:
        """Return the .pte file."""
        buffer = self.record.program_buffer()
        if buffer is None:
            raise UsageError("the record of this export has lost its program")
        return buffer

    def bundle(self) -> bytes:
        """Return the .bpte file: the program with a test case for each method. If not all outputs
        of a method are tensors, its case has no expected outputs, and a warning says so.

        Raises `BundleError` for inputs that the format cannot hold.
        """
        from etscope.bundled_program import bundle_cases

        buffer = self.program_bytes()
        cases: dict[str, list[tuple[Any, Any]]] = {}
        for method in self._methods():
            kinds = [method.values[index].kind for index in method.outputs]
            others = [f"{i} ({k.value})" for i, k in enumerate(kinds) if k is not ValueKind.TENSOR]
            if others:
                warnings.warn(
                    f"the .bpte has no expected outputs of {method.name}: only tensors can be "
                    f"verified, and not output {', '.join(others)}",
                    EtscopeWarning,
                    stacklevel=2,
                )
            expected = None if others else self.reference_outputs[method.name]
            cases[method.name] = [(self.example_inputs[method.name], expected)]
        return bundle_cases(buffer, cases)

    def save(
        self, folder: str | os.PathLike[str], name: str = "model", *, bundle: bool = True
    ) -> tuple[Path, ...]:
        """Write name.pte, name.etrecord and, with `bundle`, name.bpte; return their paths. The
        folder is made if needed.

        They replace files of these names when all of them are complete; before that, nothing is
        touched.
        """
        if not name or name in (".", "..") or Path(name).name != name:
            raise UsageError(f"not a name for files: {name!r}", hint="give a name without a folder")
        suffixes = (PROGRAM, RECORD, BUNDLE) if bundle else (PROGRAM, RECORD)
        paths = tuple(make_folder(folder) / f"{name}{suffix}" for suffix in suffixes)
        with ExitStack() as files:
            opened = [files.enter_context(atomic_write(path)) for path in paths]
            opened[0].write(self.program_bytes())
            with stage("save the ETRecord"):
                self.record.save(opened[1])
            if bundle:
                with stage("save the bundled program"):
                    opened[2].write(self.bundle())
        return paths


@takes_fields(ExportOptions)
def export(
    model: Any,
    inputs: Any = None,
    *,
    options: ExportOptions = ExportOptions(),  # noqa: B008 - frozen
    **changes: Any,
) -> Exported:
    """Export a model to ExecuTorch, with its ETRecord and expected outputs.

    Args:
        model: a `torch.nn.Module` (its `forward` is exported, in evaluation mode), an
            `ExportedProgram`, a dict of exported programs by method, or a `LanguageModel` (from
            transformers; it takes no inputs).
        inputs: example inputs: a tuple or list of positional ones, a dict by keyword, or a tensor;
            for a dict of programs, inputs by method. By default the inputs in an `ExportedProgram`.
        options, changes: fields of `ExportOptions`, as `backend="xnnpack"`; changes go before
            `options`.

    Raises `UsageError` for options that contradict each other, and for selectors of nodes that
    cannot be quantized or be an output; `MissingDataError` for one in `taps` of no node;
    `MissingDependencyError` without a backend's packages; `ExportFailure` if the model fails.
    """
    require("torch", wanted_by="export")
    require("executorch.exir", wanted_by="export")
    from etscope.bridge.lowering.export import export_model
    from etscope.etrecord import ETRecord

    options = replace(options, **changes)
    if isinstance(model, LlmConfigFile):
        return _exported_llm(model, options)
    if {"to_float32", "channels_last"} & set(options.passes):
        from etscope.bridge.lowering.variants import in_float32, with_channels_last

        if "to_float32" in options.passes:
            model, inputs = in_float32(model, inputs)
        if "channels_last" in options.passes:
            inputs = with_channels_last(model, inputs)
    if isinstance(model, LanguageModel) and is_language_model(options.float_model):
        plain = replace(model, model=options.float_model).methods()
        options = replace(options, float_model=plain)
    if inputs is None and is_language_model(model):
        model = LanguageModel(model)
    if isinstance(model, LanguageModel):
        model = model.methods()
    parts = export_model(model, inputs, options, ETRecord)
    given = {one.name: getattr(options, one.name) for one in fields(options)}
    parts.record.export_words = ("MODEL", *export_words(given))
    found = Exported(*parts, backend=options.backend)
    for text in found.undelegated():
        warnings.warn(text, EtscopeWarning, stacklevel=2)
    return found


def _exported_llm(config: LlmConfigFile, options: ExportOptions) -> Exported:
    """Export with `export_llm`, which takes only its config."""
    from etscope.bridge.language_models.export_llm import export_llm
    from etscope.etrecord import ETRecord

    default = ExportOptions()
    given = [
        field.name
        for field in fields(ExportOptions)
        if field.name != "strict" and getattr(options, field.name) != getattr(default, field.name)
    ]
    if given:
        raise UsageError(
            f"{', '.join(given)} cannot be used with {config.path}: the config itself sets "
            "how its model is exported",
            hint="change it there",
        )
    return Exported(*export_llm(config.path, ETRecord))


def keeping_partition() -> AbstractContextManager[KeptPartition]:
    """Keep which nodes partitioners take and why they refuse others, while programs are lowered
    inside by `to_edge_transform_and_lower` or `EdgeProgramManager.to_backend`.

    `export` does this by itself. For a record of your own lowering:

        with keeping_partition() as kept:
            edge = to_edge_transform_and_lower(program, partitioner=[…], generate_etrecord=True)
        …
        record = etscope.parse_etrecord("model.etrecord")
        record.partition = kept.of(edge.methods)
        record.save("model.etrecord")
    """
    require("executorch.exir", wanted_by="keeping_partition")
    from etscope.bridge.lowering import partition

    return partition.keeping_partition()


# -- language models

CONFIG = "config.json"  # as transformers calls it
DYNAMIC, ONE_TOKEN = "dynamic", "one-token"
SDPA = ("plain", "custom")


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel(Shown):
    """A transformers model that generates text, for `export`: its program has a cache of keys and
    values, and is called by ExecuTorch's runners.

    A causal model has the method `forward(tokens, position)`, tokens int64 [1, n] and position
    int64 [1], of the first of them in the context, which returns logits [1, n or 1, vocabulary]. A
    vision-language one has `vision_encoder(pixels)`, `token_embedding(tokens)` and
    `text_decoder(embeddings, position)`, a speech one `encoder(features)` and
    `text_decoder(tokens, encoder_output, position)`.

    Args:
        model: a `transformers.PreTrainedModel` for causal language modelling, image and text to
            text, or speech to text.
        context: length of the cache in tokens; by default the model's, at most 2,048.
        prompt: tokens that a call takes: "dynamic", any number; "one-token"; or a number N: the
            methods are then `prefill`, of N tokens, and `decode`, of one, with one cache. By
            default "dynamic", and "one-token" for speech.
        logits: "last", of the last token of a call, or "all". By default "all" for prompts of a
            fixed length, which a shorter one does not fill, else "last".
        sdpa: "plain" attention, in operators of ATen over the whole cache, or "custom":
            ExecuTorch's `llama::custom_sdpa`, which reads only the filled part, for causal models
            without windows. The model keeps it.

    Raises `UsageError` for values that are none of these, and in `export` for a model that
    generates no text.
    """

    model: Any
    context: int | None = None
    prompt: str | int | None = None
    logits: str | None = None
    sdpa: str = "plain"

    def __post_init__(self) -> None:
        if self.context is not None and self.context < 2:
            raise UsageError(
                f"a context of {self.context} tokens: nothing can be generated in it",
                hint="give at least 2",
            )
        if isinstance(self.prompt, str) and self.prompt not in (DYNAMIC, ONE_TOKEN):
            raise UsageError(
                f"unknown prompt {self.prompt!r}",
                hint=f"give {DYNAMIC}, {ONE_TOKEN} or a number of tokens",
            )
        if self.logits not in (None, "last", "all"):
            raise UsageError(f"unknown logits {self.logits!r}", hint="give last or all")
        if self.sdpa not in SDPA:
            raise UsageError(f"unknown sdpa {self.sdpa!r}", hint=f"give {' or '.join(SDPA)}")

    def methods(self) -> ModelMethods:
        """Return its methods, not exported yet."""
        require("transformers", wanted_by="exporting a language model")
        from etscope.bridge.language_models.methods import Choices, language_model_methods

        all_logits = None if self.logits is None else self.logits == "all"
        choices = Choices(self.context, self.prompt, all_logits, self.sdpa == "custom")
        return language_model_methods(self.model, choices)


def is_language_model(model: Any) -> bool:
    """Return whether a model is one of transformers that generates text."""
    return hasattr(model, "generate") and hasattr(model, "generation_config")


def config_file(spec: str) -> Path | None:
    """Return the config.json that `spec` names: its path, or the path of its folder; None for
    anything else.
    """
    path = Path(spec)
    if path.is_dir() and (path / CONFIG).is_file():
        return path / CONFIG
    return path if path.suffix == ".json" and path.is_file() else None


def check_config(path: Path) -> None:
    """Raise `FormatError` for a file that is not a config of transformers, without importing it."""
    hint = "give the config.json of a transformers model, or its folder"
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}", path=path, hint=hint) from error
    if not isinstance(value, dict) or not isinstance(value.get("model_type"), str):
        raise FormatError("not a config of transformers: no model_type", path=path, hint=hint)


def load_config(path: Path, seed: int | None) -> tuple[str, Any]:
    """Return a name for the language model of a config.json, and the model."""
    require("transformers", wanted_by="exporting a language model")
    from etscope.bridge.language_models.methods import model_of_config

    model = model_of_config(path, seed)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return name, model


@dataclass(frozen=True, slots=True)
class LlmConfigFile:
    """A config of ExecuTorch's `export_llm`: a YAML file."""

    path: Path


def is_llm_config(spec: str) -> bool:
    """Return whether `spec` names a YAML file."""
    return Path(spec).suffix in (".yaml", ".yml") and Path(spec).is_file()
