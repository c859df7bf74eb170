"""The model that a user names: a Python attribute, a .pt2 file or a config of a language model; and
its example inputs, from a file or from texts such as "float32[1,3,224,224]".
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from etscope.errors import EtscopeError, FormatError, MissingFileError, UsageError
from etscope.export._export import (
    Exported,
    LanguageModel,
    LlmConfigFile,
    check_config,
    config_file,
    export,
    is_language_model,
    is_llm_config,
    load_config,
)
from etscope.formats.bytes.files import PathLike, open_source
from etscope.formats.identify import describe
from etscope.formats.torch_files.pt2_archive import is_pt2
from etscope.support.optional import require
from etscope.support.shown import Shown

if TYPE_CHECKING:
    from etscope.formats.torch_files.tensor_files import TensorFile

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
class Source(Shown):
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
        found = export(self.model, self.inputs, dynamic_shapes=self.dynamic_shapes, **options)
        found.record.export_words = (self.spec, *found.record.export_words[1:])
        return found

    def as_exported(self) -> Source:
        """Return the source with a model that generates text, and has no inputs, as a
        `LanguageModel`: `export` takes it for one.

        Raises `UsageError` for a config of `export_llm`, which takes no options.
        """
        if isinstance(self.model, LlmConfigFile):
            raise UsageError(
                f"{self.spec} itself sets how its model is exported: no option can be tried",
                hint="change the options in that file, and compare the runs: etscope diff",
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
                hint="leave these options out, or give a config.json or a transformers model "
                "without inputs",
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
            hint="name the tensors as the parameters of forward, or write an .npz file",
        )
    if not file.values:
        raise UsageError(f"{file.path} holds no tensors")
    return tuple(file.values)


def load_model(spec: str, *, inputs: PathLike | None = None, seed: int | None = 0) -> Source:
    """Find the model that `spec` names.

    "package.module:attribute" is imported with the current folder on `sys.path`, and
    "path/to/file.py:attribute" with the file's folder. The attribute is a `torch.nn.Module` or a
    subclass of it, an `ExportedProgram`, a dict of exported programs by method, or a function
    without arguments that returns one of these, or `(module, example_inputs)`, or `(module,
    example_inputs, dynamic_shapes)`. It may also be an object with `get_eager_model` and
    `get_example_inputs`.

    "file.pt2" is a file from `torch.export.save`; no code in it is run. "config.json", or a folder
    with one, is a language model of transformers, with the weights in safetensors files next to it,
    or else with random weights from the seed. "llm.yaml" is a config of ExecuTorch's `export_llm`,
    which then does the export.

    Args:
        inputs: a file of example inputs, instead of those that come with the model.
        seed: torch's random seed, set before the user's code makes the model; None does not set it.

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
            raise UsageError(f"{spec!r} does not name a model", hint="give file.py:attribute")
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
            hint="name a class or function in the file: "
            f"{path}:{(names or ['make_model'])[0]}{others}",
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
            "name that function",
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
        # The interface of ExecuTorch's own example models.
        from etscope.bridge.lowering.export import Inputs

        with _blaming(f"{spec}.get_eager_model() fails"):
            model = value.get_eager_model()
        if not _is_module(model):
            raise UsageError(
                f"{spec}.get_eager_model() is {_described(model)}, not a torch.nn.Module"
            )
        with _blaming(f"{spec}.get_example_inputs() fails"):
            inputs = value.get_example_inputs()
            by_name: Any = getattr(value, "get_example_kwarg_inputs", dict)()
        if by_name:
            inputs = Inputs(tuple(inputs), dict(by_name))
        with _blaming(f"{spec}.get_dynamic_shapes() fails"):
            dynamic_shapes = getattr(value, "get_dynamic_shapes", lambda: None)()
        return _Model(model, inputs, dynamic_shapes)
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


# -- example inputs from texts

_INPUT = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<dtype>[a-z]+\d*)\[(?P<sizes>[^\]]*)\]")
_SIZE = re.compile(r"(?:(?P<dim>[A-Za-z_]\w*)=(?P<low>\d{1,9})\.\.)?(?P<size>\d{1,9})")
_HINT = "for example float32[1,3,224,224], ids=int64[1,16], or [b=1..8,3,224,224] with a type"


def inputs_of_texts(texts: Sequence[str]) -> tuple[Any, Any]:
    """Return example inputs and dynamic shapes, as `torch.export.export` takes both.

    Each text is TYPE[SIZE,…] or NAME=TYPE[SIZE,…]; a size may be DIM=LOW..HIGH, which the program
    takes any value of. Floats are drawn from a normal distribution, integers are 0 or 1, which are
    indices of any table. With names the inputs are a dict; the dynamic shapes are None if no size
    is dynamic.

    Raises `UsageError` for a text of another form, and for named and unnamed ones together.
    """
    import torch

    values, shapes = [], []
    dims: dict[str, Any] = {}
    for text in texts:
        match = _INPUT.fullmatch(text.replace(" ", ""))
        dtype = None if match is None else getattr(torch, match["dtype"], None)
        if match is None or not isinstance(dtype, torch.dtype):
            raise UsageError(f"{text!r} is not an input", hint=_HINT)
        sizes: list[int] = []
        dynamic: dict[int, Any] = {}
        for index, part in enumerate(filter(None, match["sizes"].split(","))):
            size = _SIZE.fullmatch(part)
            if size is None or (size["dim"] and int(size["low"]) >= int(size["size"])):
                raise UsageError(f"{part!r} in {text!r} is not a size", hint=_HINT)
            sizes.append(int(size["size"]))
            if size["dim"]:
                made = torch.export.Dim(size["dim"], min=int(size["low"]), max=sizes[-1])
                dynamic[index] = dims.setdefault(size["dim"], made)
                if (dims[size["dim"]].min, dims[size["dim"]].max) != (made.min, made.max):
                    raise UsageError(f"{size['dim']} has two ranges", hint="give it one")
        if dtype.is_floating_point:
            values.append(torch.randn(sizes).to(dtype))
        else:
            values.append(torch.randint(0, 2, sizes).to(dtype))
        shapes.append((match["name"], dynamic))
    names = [name for name, _ in shapes if name]
    if names and len(set(names)) != len(texts):
        raise UsageError(
            "all inputs need different names, or none may have a name", hint="name all, or none"
        )
    is_dynamic = bool(dims)
    if names:
        named = dict(zip(names, values, strict=True))
        return named, (dict(shapes) if is_dynamic else None)
    return tuple(values), (tuple(one for _, one in shapes) if is_dynamic else None)
