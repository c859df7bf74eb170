"""`export()`, its result, and the model that a user names: a Python attribute or a .pt2 file."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from etscope.analysis.program.compatibility import instruction_labels
from etscope.analysis.program.xnnpack_events import untaken_types
from etscope.backends import chosen
from etscope.backends.registry.export_options import ExportOptions
from etscope.errors import EtscopeError, EtscopeWarning, FormatError, MissingFileError, UsageError
from etscope.export._language_model import (
    LanguageModel,
    LlmConfigFile,
    check_config,
    config_file,
    is_language_model,
    is_llm_config,
    load_config,
)
from etscope.formats.bytes.files import PathLike, atomic_write, make_folder, open_source
from etscope.formats.identify import describe
from etscope.formats.program.pte import read_pte
from etscope.formats.program.pte_schema import Method, ValueKind
from etscope.formats.torch_files.pt2_archive import is_pt2
from etscope.support.optional import require
from etscope.support.options import takes_fields

if TYPE_CHECKING:
    from etscope.etrecord import ETRecord
    from etscope.formats.torch_files.tensor_files import TensorFile


_NAMES = 4  # of operators, in a message

PROGRAM, RECORD, BUNDLE = ".pte", ".etrecord", ".bpte"


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
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
        """Return for each method without an operator in the backend the likely reason; for a method
        with some, only if the types of the others' tensors are the reason."""
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
            listed = list(dict.fromkeys(name.partition(".")[0] for name in operators))
            more = f" and {len(listed) - _NAMES} more" if len(listed) > _NAMES else ""
            unsupported = f"{', '.join(listed[:_NAMES])}{more}"
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
        """Return the .bpte file: the program with a test case for each method, without expected
        outputs, and with a warning, where not all outputs are tensors.

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
            self.record.save(opened[1])
            if bundle:
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
        model: a `torch.nn.Module`, the method "forward" in evaluation mode, an `ExportedProgram`, a
            dict of those by method, or a `LanguageModel` (transformers' models without inputs).
        inputs: example inputs: a tuple or list of positional ones, a dict by keyword, or a tensor;
            for a dict of programs, these by method. By default those that a program holds.
        options, changes: fields of `ExportOptions`, as `backend="xnnpack"`; changes go before
            `options`.

    Raises `UsageError` for options that contradict each other, and for selectors of nodes that
    cannot be quantised or be an output; `MissingDataError` for one in `taps` of no node;
    `MissingDependencyError` without a backend's packages; `ExportFailure` if the model fails.
    """
    require("torch", wanted_by="export")
    require("executorch.exir", wanted_by="export")
    return _exported(model, inputs, replace(options, **changes))


def _exported(model: Any, inputs: Any, options: ExportOptions) -> Exported:
    """Export a model; a language model as its methods, and its float model likewise."""
    from etscope.bridge.lowering.export import export_model
    from etscope.etrecord import ETRecord

    if isinstance(model, LlmConfigFile):
        return _exported_llm(model, options)
    if isinstance(model, LanguageModel) and is_language_model(options.float_model):
        plain = replace(model, model=options.float_model).methods()
        options = replace(options, float_model=plain)
    if inputs is None and is_language_model(model):
        model = LanguageModel(model)
    if isinstance(model, LanguageModel):
        model = model.methods()
    parts = export_model(model, inputs, options, ETRecord)
    found = Exported(*parts, backend=options.backend)
    for text in found.undelegated():
        warnings.warn(text, EtscopeWarning, stacklevel=3)  # of the caller of `export`
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
            f"{', '.join(given)} cannot be given for {config.path}: it says itself how its model "
            "is exported",
            hint="change it there",
        )
    return Exported(*export_llm(config.path, ETRecord))


_FRAMES = 3  # lines of the user's code in a message
_FORMS = (
    "a torch.nn.Module, (module, example_inputs), (module, example_inputs, dynamic_shapes), an "
    "ExportedProgram or a dict of those by method"
)

FACTORY_HINT = """write a function that makes the model, and name it:
    # factory.py
    def make():
        model = MyModel()
        model.load_state_dict(torch.load("weights.pt", weights_only=True))
        return model, (torch.randn(1, 3, 224, 224),)
  and give factory.py:make"""


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A model that was found, ready for `export`.

    spec: the user's name for it.
    name: a short name, good for a folder.
    model: a `torch.nn.Module`, an `ExportedProgram`, or a dict of those by method.
    inputs: its example inputs in any form that `export` takes; None if there are none.
    """

    spec: str
    name: str
    model: Any
    inputs: Any = None
    dynamic_shapes: Any = None

    def export(self, **options: Any) -> Exported:
        """Export it, with the options of `etscope.export.export`."""
        return export(self.model, self.inputs, dynamic_shapes=self.dynamic_shapes, **options)

    def as_exported(self) -> Source:
        """Return the source with a model that generates text, and has no inputs, as a
        `LanguageModel`: `export` takes it for one.

        Raises `UsageError` for a config of `export_llm`, which takes no options.
        """
        if isinstance(self.model, LlmConfigFile):
            raise UsageError(
                f"{self.spec} says itself how its model is exported: no option can be tried",
                hint="change it there, and compare the runs: etscope diff",
            )
        if self.inputs is None and is_language_model(self.model):
            return replace(self, model=LanguageModel(self.model))
        return self

    def generating(
        self,
        context: int | None = None,
        prompt: str | int | None = None,
        logits: str | None = None,
        sdpa: str | None = None,
    ) -> Source:
        """Return this model as a `LanguageModel` with these choices; itself without any.

        Raises `UsageError` if there are any for a model that is not to generate text.
        """
        if context is None and prompt is None and logits is None and sdpa is None:
            return self
        if self.inputs is not None or not is_language_model(self.model):
            why = "has example inputs" if self.inputs is not None else "is none of transformers"
            raise UsageError(
                f"context, prompt, logits and sdpa are for a language model, and {self.spec} {why}",
                hint="leave them out, or give a config.json or a transformers model without inputs",
            )
        if isinstance(prompt, str) and prompt.isascii() and prompt.isdigit():
            prompt = int(prompt)
        chosen = LanguageModel(self.model, context, prompt, logits, sdpa or "plain")
        return replace(self, model=chosen)

    def with_inputs(self, texts: Sequence[str]) -> Source:
        """Return the source with example inputs, and dynamic shapes, from texts such as
        "float32[1,3,224,224]"; see `inputs_of_texts`. Itself without any."""
        if not texts:
            return self
        from etscope.export._input_texts import inputs_of_texts

        inputs, dynamic_shapes = inputs_of_texts(texts)
        return replace(self, inputs=inputs, dynamic_shapes=dynamic_shapes)

    def read_inputs(self, path: PathLike) -> Any:
        """Read example inputs for this model from a file of tensors (.npz, .npy, .safetensors,
        .pt).

        Named tensors are matched with the parameters of the module's `forward`; else they are
        taken in the file's order. Raises `UsageError` for a file that keeps none.
        """
        from etscope.formats.torch_files.tensor_files import read_tensor_file

        return inputs_of_file(self.model, read_tensor_file(path))


def inputs_of_file(model: Any, file: TensorFile) -> Any:
    """Return the example inputs in a file: by name where `forward` has parameters of those names,
    else in order."""
    if isinstance(file.content, (tuple, list, Mapping)):
        return file.content
    if _is_module(model) and len(file.values) > 1 and all(file.names):
        parameters = list(inspect.signature(model.forward).parameters)
        named = dict(zip(file.names, file.values, strict=True))
        if named.keys() <= set(parameters):
            order = [name for name in parameters if name in named]
            if order == parameters[: len(order)]:  # none left out before: all by position
                return tuple(named[name] for name in order)
            return named
    if not file.ordered:
        raise UsageError(
            f"{file.path} does not keep the order of its tensors, and their names "
            f"({', '.join(map(str, file.names))}) differ from the model's parameters",
            hint="name them as the parameters of forward, or write an .npz file",
        )
    if not file.values:
        raise UsageError(f"{file.path} holds no tensors")
    return tuple(file.values)


def load_model(spec: str, *, inputs: PathLike | None = None, seed: int | None = 0) -> Source:
    """Find the model that `spec` names.

    "package.module:attribute" is imported with the current folder on `sys.path`, and
    "path/to/file.py:attribute" with the file's. The attribute is a `torch.nn.Module` or a class of
    one, an `ExportedProgram` or a dict of those by method, or a function without arguments that
    returns one of these, or `(module, example_inputs)` or `(module, example_inputs,
    dynamic_shapes)`. It may also be an object with `get_eager_model` and `get_example_inputs`.

    "file.pt2" is a file of `torch.export.save`. No code of it is run. "config.json", or a folder
    with one, is a language model of transformers, with the weights in safetensors files next to
    it, or else random ones of the seed. "llm.yaml" is a config of ExecuTorch's `export_llm`, which
    then does the export.

    Args:
        inputs: a file of example inputs, instead of those that come with the model.
        seed: for torch's random numbers, before the user's code makes the model; None leaves them.

    Raises `UsageError` for a name that is not found or does not give a model (with the lines of the
    user's code if it raises), and `FormatError` for a .pt2 file that is damaged, or not safe to
    load.
    """
    check_model_name(spec)
    torch = require("torch", wanted_by="export")
    target, colon, path = spec.rpartition(":")
    config = config_file(spec)
    if config is not None:
        source = Source(spec, *load_config(config, seed))
    elif is_llm_config(spec):
        source = Source(spec, Path(spec).stem, LlmConfigFile(Path(spec)))
    elif not colon or Path(spec).is_file():
        from etscope.bridge.programs import load_pt2

        file = open_source(spec, "model")
        source = Source(spec, Path(spec).stem, load_pt2(file.buffer, spec))
    else:
        if seed is not None:
            torch.manual_seed(seed)
        found = _model_of(_attribute(_import_target(target), path, spec), spec)
        source = Source(spec, path.rpartition(".")[2].strip("_") or "model", *found)
    return source if inputs is None else replace(source, inputs=source.read_inputs(inputs))


def check_model_name(spec: str) -> None:
    """Raise the errors of `load_model` that a name or a look into its file shows, without importing
    torch."""
    config = config_file(spec)
    if config is not None:
        check_config(config)
        return
    if is_llm_config(spec):
        return
    target, colon, attribute = spec.rpartition(":")
    path = Path(spec)
    if path.is_dir():
        raise UsageError(
            f"the folder {path} has no config.json", hint="give the folder of a transformers model"
        )
    if colon and not path.is_file():
        if not target or not attribute:
            raise UsageError(f"no model is named by {spec!r}", hint="give file.py:attribute")
        if target.endswith(".py"):
            _check_attribute(Path(target), attribute, spec)
        return
    is_word = path.suffix == "" or path.suffix[1:].isidentifier()
    if path.suffix == ".py" or (
        is_word and not path.exists() and path.suffix not in (".pt2", ".pt")
    ):
        names = _callable_names(_parsed(path)) if path.is_file() else []
        others = f" (or {', '.join(names[1:4])})" if names[1:] else ""
        raise UsageError(
            f"{path} does not say what the model is",
            hint=f"name a class or function in it: {path}:{(names or ['make_model'])[0]}{others}",
        )
    source = open_source(path, "model")
    if is_pt2(source.buffer):
        return
    is_pickle = bytes(source.buffer[:2]) in (b"\x80\x02", b"\x80\x04")
    if is_pickle or path.suffix in (".pt", ".pth", ".pkl", ".bin", ".ckpt", ".safetensors"):
        raise UsageError(
            f"{path} holds weights or a pickled module, and loading that runs code in the file",
            hint=FACTORY_HINT,
        )
    raise FormatError(
        f"not a file of torch.export.save (.pt2): {describe(source.buffer)}",
        path=path,
        hint="give a .pt2 file, package.module:attribute or file.py:attribute",
    )


# -- the user's Python


def _parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    if not path.is_file():
        raise MissingFileError(f"file not found: {path}")
    with _blaming(f"cannot import {path}"):
        return ast.parse(path.read_bytes(), str(path))


def _callable_names(tree: ast.Module) -> list[str]:
    """List the public functions and classes of a file, the functions without arguments first."""
    found: dict[str, bool] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = False
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = not (node.args.args or node.args.kwonlyargs)
    public = [name for name in found if not name.startswith("_")]
    return sorted(public, key=lambda name: not found[name])


# With one of these, a module may have names that its syntax does not show.
_DYNAMIC = {"globals", "vars", "locals", "exec", "eval", "setattr", "__getattr__", "__dict__", "*"}


def _check_attribute(path: Path, attribute: str, spec: str) -> None:
    """Raise `UsageError` if no line of the file gives it a name such as the attribute's first."""
    tree = _parsed(path)
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=new):
                names.add(new or name.partition(".")[0])
    first = attribute.partition(".")[0]
    if first not in names and not names & _DYNAMIC:
        raise _no_attribute(first, _callable_names(tree), "module", path.stem, spec)


def _no_attribute(name: str, known: Iterable[str], kind: str, owner: str, spec: str) -> UsageError:
    close = get_close_matches(name, [one for one in known if not one.startswith("_")])
    return UsageError(
        f"{spec}: {kind} {owner} has no {name!r}",
        hint=f"did you mean {close[0]!r}?" if close else None,
    )


@contextmanager
def _blaming(what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a `UsageError` with the lines that it came from.

    `what` begins the message: "models.py:make_model() fails".
    """
    try:
        yield
    except EtscopeError:
        raise
    except (Exception, SystemExit) as error:
        from etscope.bridge.failures import innermost, own_frames

        lines = "".join(f"\n  at {frame}" for frame in own_frames(error)[-_FRAMES:])
        raise UsageError(f"{what}: {innermost(error)}{lines}") from error


def _import_target(target: str) -> ModuleType:
    """Import the module of a dotted name, seen from the current folder, or of a path to a .py file.

    The folder stays on `sys.path`, as it does when Python runs a file in it.
    """
    if target.endswith(".py"):
        return _import_file(Path(target))
    if not all(part.isidentifier() for part in target.split(".")):
        raise UsageError(
            f"{target!r} is not the name of a module, and no file of that name is here",
            hint="give package.module:attribute, path/to/file.py:attribute or a .pt2 file",
        )
    _put_on_path(Path.cwd())
    with _blaming(f"cannot import {target} from {Path.cwd()}"):
        return importlib.import_module(target)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise MissingFileError(f"file not found: {path}")
    _put_on_path(path.resolve().parent)
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == (
        path.resolve()
    ):
        return known
    if known is not None or not name.isidentifier():
        name = f"etscope_model_{abs(hash(str(path.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # torch looks there for names that functions of the module use
    try:
        with _blaming(f"cannot import {path}"):
            spec.loader.exec_module(module)
    except EtscopeError:
        del sys.modules[name]
        raise
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _attribute(module: ModuleType, path: str, spec: str) -> Any:
    """Return "name" or "Class.method" of the module; a method is bound to a new instance."""
    value: Any = module
    owner: Any = module
    for name in path.split("."):
        if not hasattr(value, name):
            kind = "module" if isinstance(value, ModuleType) else "class"
            shown = getattr(value, "__name__", None) or type(value).__name__
            raise _no_attribute(name, dir(value), kind, shown, spec)
        owner, value = value, getattr(value, name)
    if inspect.isclass(owner) and inspect.isfunction(value):
        name = value.__name__
        if not isinstance(inspect.getattr_static(owner, name, None), staticmethod):
            value = getattr(_called(owner, spec.rpartition(".")[0]), name)
    return value


def _called(function: Callable[[], Any], spec: str) -> Any:
    """Call a function or class without arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-ins; the call will fail if it needs arguments
        signature = inspect.Signature()
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{spec} needs arguments: {', '.join(needed)}",
            hint="write a function without arguments that returns (module, example_inputs), and "
            "name that",
        )
    with _blaming(f"{spec}() fails"):
        return function()


# -- the model that an attribute is, or returns


class _Model(NamedTuple):
    """A model with its inputs and dynamic shapes, each None if it has none."""

    model: Any
    inputs: Any = None
    dynamic_shapes: Any = None


def _model_of(value: Any, spec: str) -> _Model:
    """Return the model that an attribute is, or returns when it is called."""
    has_eager_model = hasattr(value, "get_eager_model") and hasattr(value, "get_example_inputs")
    if not _is_model(value) and not isinstance(value, (tuple, Mapping)):
        if not has_eager_model and not callable(value):
            raise UsageError(
                f"{spec} is {_described(value)}",
                hint=f"name {_FORMS}, or a function that returns one",
            )
        if inspect.isclass(value) or not has_eager_model:
            spec, value = f"{spec}()", _called(value, spec)
    if _is_model(value):
        for name in ("example_inputs", "get_example_inputs") if _is_module(value) else ():
            inputs = getattr(value, name, None)
            if callable(inputs):
                inputs = _called(inputs, f"{spec}.{name}")
            if inputs is not None:
                return _Model(value, inputs)
        return _Model(value)
    if isinstance(value, tuple) and len(value) in (2, 3) and _is_module(value[0]):
        return _Model(*value)
    if hasattr(value, "get_eager_model") and hasattr(value, "get_example_inputs"):
        return _eager_model(value, spec)
    raise UsageError(f"{spec} is {_described(value)}", hint=f"return {_FORMS}")


def _is_model(value: Any) -> bool:
    from torch.export import ExportedProgram

    if isinstance(value, Mapping):
        return bool(value) and all(isinstance(one, ExportedProgram) for one in value.values())
    return _is_module(value) or isinstance(value, ExportedProgram)


def _is_module(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _described(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {', '.join(type(one).__name__ for one in value[:6])}"
    return "None" if value is None else f"of type {type(value).__name__}"


def _eager_model(value: Any, spec: str) -> _Model:
    """Read the interface of ExecuTorch's own example models."""
    from etscope.bridge.lowering.export import Inputs

    with _blaming(f"{spec}.get_eager_model() fails"):
        model = value.get_eager_model()
    if not _is_module(model):
        raise UsageError(f"{spec}.get_eager_model() is {_described(model)}, not a torch.nn.Module")
    with _blaming(f"{spec}.get_example_inputs() fails"):
        inputs = value.get_example_inputs()
        by_name: Any = getattr(value, "get_example_kwarg_inputs", dict)()
    if by_name:
        inputs = Inputs(tuple(inputs), dict(by_name))
    with _blaming(f"{spec}.get_dynamic_shapes() fails"):
        dynamic_shapes = getattr(value, "get_dynamic_shapes", lambda: None)()
    return _Model(model, inputs, dynamic_shapes)
