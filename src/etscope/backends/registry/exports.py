"""The table of backends that etscope can export for.

An entry makes the backend's partitioners and its quantizer, with ExecuTorch's own ahead-of-time
packages. The keyword parameters of these two functions are the options of the backend:
`-X vulkan.force_fp16=true` is `vulkan.partitioners(force_fp16=True)`.

Another package adds a backend by an entry point of the group `etscope.backends`, under the
backend's name. The entry point is a `Backend`, or a function that returns partitioners.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, Union, get_args, get_origin

from etscope.backends import coreai, coreml, recipes, vulkan
from etscope.backends.arm import delegates as arm
from etscope.errors import UsageError
from etscope.support.optional import require

PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class Backend:
    """Recipe to lower to a backend.

    summary: one line about it.
    partitioners: makes the partitioners for `to_edge_transform_and_lower`; None: no delegate. A
        parameter `quantize` gets True if the export quantizes.
    quantizer: makes a quantizer for `prepare_pt2e`.
    requires: modules that the two functions import, other than ExecuTorch's.
    edge_config: fields of `EdgeCompileConfig` that it needs.
    fold_quantize: argument of `convert_pt2e`; True keeps weights in int8.
    keeps_float: its quantizer skips nodes that already have an annotation.
    if_untaken: a sentence: the likely cause if it does not take any operator of a model.
    """

    summary: str = ""
    partitioners: Callable[..., Sequence[Any]] | None = None
    quantizer: Callable[..., Any] | None = None
    requires: tuple[str, ...] = ()
    edge_config: Mapping[str, bool] = field(default_factory=dict)
    fold_quantize: bool = True
    keeps_float: bool = False
    if_untaken: str = ""

    def options(self) -> dict[str, Option]:
        """Return its options by name: first the partitioners', then the quantizer's others."""
        found: dict[str, Option] = {}
        for function in (self.partitioners, self.quantizer):
            if function is not None:
                found = found | {k: v for k, v in options_of(function).items() if k not in found}
        found.pop("quantize", None)
        return found


BACKENDS: Mapping[str, Backend] = {
    PORTABLE: Backend("no delegate: ExecuTorch's portable kernels, slow, but run everywhere"),
    "xnnpack": Backend(
        "XNNPACK, for CPUs",
        recipes.xnnpack_partitioners,
        recipes.xnnpack_quantizer,
        keeps_float=True,
    ),
    "vulkan": Backend(
        "Vulkan, for GPUs of Android and others",
        vulkan.partitioners,
        vulkan.quantizer,
        keeps_float=True,
    ),
    "webgpu": Backend(
        "WebGPU, for browsers: same programs as Vulkan",
        vulkan.webgpu_partitioners,
        vulkan.quantizer,
        keeps_float=True,
    ),
    "coreml": Backend(
        "Core ML, for Apple's CPUs, GPUs and Neural Engine",
        coreml.partitioners,
        coreml.quantizer,
        requires=("coremltools",),
    ),
    "coreai": Backend(
        "Core AI, Apple's runtime of 2026; only for inspection, as ExecuTorch 1.5 cannot run it",
        coreai.partitioners,
        requires=("coreai_torch",),
        edge_config={"_skip_dim_order": True},
    ),
    "openvino": Backend(
        "OpenVINO, for Intel's CPUs, GPUs and NPUs",
        recipes.openvino_partitioners,
        recipes.openvino_quantizer,
        requires=("openvino", "nncf"),
        fold_quantize=False,
    ),
    "ethos-u": Backend(
        "Arm's Ethos-U NPUs, compiled by Vela",
        arm.ethos_u_partitioners,
        arm.ethos_u_quantizer,
        requires=("tosa_serializer", "ethosu.vela"),
        if_untaken="An Ethos-U takes int8 only: quantize the model (--quantize)",
    ),
    "tosa": Backend(
        "TOSA, the operator set of Arm's backends; only for inspection, as runtimes do not run it",
        arm.tosa_partitioners,
        arm.tosa_quantizer,
        requires=("tosa_serializer",),
    ),
    "vgf": Backend(
        "VGF, for Arm's neural graphics: ML extensions of Vulkan",
        arm.vgf_partitioners,
        arm.vgf_quantizer,
        requires=("tosa_serializer", "model_converter"),
    ),
    "native": Backend(
        "ExecuTorch's native backend, an experiment",
        recipes.native_partitioners,
        edge_config={"_check_ir_validity": False, "_skip_dim_order": True},
    ),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """A backend with the options that the user gave."""

    name: str
    backend: Backend
    options: Mapping[str, Any] = field(default_factory=dict)

    def partitioners(self, quantize: bool) -> list[Any]:
        """Make its partitioners. Raises `MissingDependencyError` without a required package."""
        function = self.backend.partitioners
        if function is None:
            return []
        self.check_packages()
        taken = options_of(function)
        given: dict[str, Any] = {k: v for k, v in self.options.items() if k in taken}
        if "quantize" in taken:
            given["quantize"] = quantize
        return list(function(**given))

    def quantizer(self) -> Any:
        """Make its quantizer.

        Raises `UsageError` for a backend without one, `MissingDependencyError` without a required
        package.
        """
        function = self.backend.quantizer
        if function is None:
            raise UsageError(f"the backend {self.name!r} does not have a quantizer")
        self.check_packages()
        taken = options_of(function)
        return function(**{k: v for k, v in self.options.items() if k in taken})

    def check_packages(self) -> None:
        """Raise `MissingDependencyError` for a required package that is not installed."""
        for module in self.backend.requires:
            require(module, wanted_by=f"the backend {self.name!r}")


def chosen(names: str, options: Mapping[str, Any] | None = None) -> tuple[Chosen, ...]:
    """Return the backends of these names, separated by commas, in order, with their options.

    options: values by name, or by "backend.name"; a text is converted to the option's type.

    Raises `UsageError` for an unknown backend, an option that none or several of them have, and a
    value of the wrong type.
    """
    parts = [name.strip() for name in names.split(",")]
    found = {name: _backend(name) for name in parts}
    if len(found) < len(parts):
        raise UsageError(f"the same backend twice: {names}")
    if PORTABLE in found and len(found) > 1:
        raise UsageError(
            f"{PORTABLE!r} is not a delegate: it cannot be combined with other backends",
            hint=f"leave out {PORTABLE!r}: nodes that no backend takes run on portable kernels "
            "anyway",
        )
    given: dict[str, dict[str, Any]] = {name: {} for name in found}
    for key, value in (options or {}).items():
        name, option = _option(key, found)
        given[name][option.name] = parsed(value, option, f"{name}.{option.name}")
    return tuple(Chosen(name, backend, given[name]) for name, backend in found.items())


def quantizing(found: Sequence[Chosen]) -> Chosen:
    """Return the first backend with a quantizer: this one quantizes the model.

    Raises `UsageError` if none has one.
    """
    for one in found:
        if one.backend.quantizer is not None:
            return one
    names = " and ".join(one.name for one in found)
    having = [name for name, one in BACKENDS.items() if one.quantizer is not None]
    raise UsageError(
        f"the backend {names!r} does not have a quantizer: its kernels compute in floating point, "
        "where a quantized program is only slower",
        hint=f"backends with a quantizer: {', '.join(having)}",
    )


def check_options(found: Sequence[Chosen], quantize: bool) -> None:
    """Raise `UsageError` if `quantize` is True and no backend has a quantizer, and for an option of
    an unused quantizer."""
    used = quantizing(found) if quantize else None
    for one in found:
        own = {} if one.backend.partitioners is None else options_of(one.backend.partitioners)
        for name in one.options:
            if name in own or one is used:
                continue
            if used is None:
                raise UsageError(
                    f"the option {name!r} is for the quantizer of {one.name}, and the export does "
                    "not quantize",
                    hint="add --quantize (quantize=True)",
                )
            raise UsageError(
                f"the option {name!r} is for the quantizer of {one.name}, but the quantizer of "
                f"{used.name} quantizes the model",
                hint=f"name {one.name} before {used.name}",
            )


def _option(key: str, found: Mapping[str, Backend]) -> tuple[str, Option]:
    """Return the backend and the option that a key names."""
    name, dot, wanted = key.rpartition(".")
    if dot and name not in found:
        raise UsageError(
            f"the option {key!r} is for a backend that you did not choose",
            hint=f"chosen backends: {', '.join(found)}",
        )
    asked = {name: found[name]} if dot else found
    having = [one for one, backend in asked.items() if wanted in backend.options()]
    if len(having) > 1:
        raise UsageError(
            f"several backends have the option {key!r}",
            hint="write the option with its backend: "
            f"{' or '.join(f'{one}.{wanted}' for one in having)}",
        )
    if not having:
        lines = []
        for one, backend in asked.items():
            options = [f"\n    {option}" for option in backend.options().values()]
            lines.append(f"\n  {one}:{''.join(options) or ' none'}")
        raise UsageError(f"unknown option {key!r}", hint=f"the options are:{''.join(lines)}")
    return having[0], asked[having[0]].options()[wanted]


def _backend(name: str) -> Backend:
    if name in BACKENDS:
        return BACKENDS[name]
    added = _entries()
    if name not in added:
        raise UsageError(
            f"unknown backend {name!r}", hint=f"backends: {', '.join([*BACKENDS, *added])}"
        )
    entry = added[name]
    try:
        value = entry.load()
    except Exception as error:
        raise UsageError(
            f"cannot load the backend {name!r} of another package: {error}",
            hint=f"its entry point is {entry.value}",
        ) from error
    if isinstance(value, Backend):
        return value
    if not callable(value):
        raise UsageError(
            f"the backend {name!r} of another package is neither a Backend nor a function",
            hint=f"its entry point is {entry.value}",
        )
    return Backend(partitioners=value)


@cache
def _entries() -> Mapping[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group="etscope.backends")}


# -- options: keyword parameters of functions, with values parsed from text

_TRUTHS = {"true": True, "yes": True, "on": True, "1": True}
_TRUTHS |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a function.

    type: its annotation: bool, int, float, str, tuple[str, ...], a Literal, or one of these or
        None. `parsed` returns a text for any other type unchanged.
    default: `inspect.Parameter.empty` if the parameter is required.
    """

    name: str
    type: Any
    default: Any

    def __str__(self) -> str:
        """Return "name=VALUE" with the accepted values."""
        return f"{self.name}={self.values}"

    @property
    def values(self) -> str:
        """The accepted values, for people: "true|false"."""
        kind = _inner(self.type)
        if get_origin(kind) is Literal:
            return "|".join(map(str, get_args(kind)))
        if get_origin(kind) is tuple:
            return "TEXT,TEXT"
        return {bool: "true|false", int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the parameters of a function by name, without *args and **kwargs."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: Option(name, one.annotation, one.default)
        for name, one in inspect.signature(function, eval_str=True).parameters.items()
        if one.kind not in collecting
    }


def parsed(value: Any, option: Option, name: str) -> Any:
    """Return the value of an option, with a text converted to the option's type. name: the
    option's, for messages.

    Raises `UsageError` for a value of the wrong type.
    """
    kind = _inner(option.type)
    found = value
    if get_origin(kind) is Literal:
        found = next((one for one in get_args(kind) if value == one or value == str(one)), None)
    elif kind is bool:
        found = _TRUTHS.get(value.lower()) if isinstance(value, str) else value
        found = found if isinstance(found, bool) else None
    elif kind in (int, float):
        try:
            found = None if isinstance(value, bool) else kind(value)
        except (TypeError, ValueError):
            found = None
    elif get_origin(kind) is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if isinstance(parts, (list, tuple)) and all(isinstance(part, str) for part in parts):
            found = tuple(part.strip() for part in parts)
        else:
            found = None
    elif kind is str and not isinstance(value, str):
        found = None
    if found is None:
        raise UsageError(f"{value!r} is not a value of {name}", hint=f"give {option}")
    return found


def _inner(kind: Any) -> Any:
    """Return the type without None: int for `int | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        others = [one for one in get_args(kind) if one is not type(None)]
        return others[0] if len(others) == 1 else kind
    return kind


__all__ = ["BACKENDS", "Backend", "Chosen", "Option", "check_options", "chosen", "quantizing"]
