"""Backends that a model can be exported for: one entry for each.

An entry makes the backend's partitioners, and its quantizer where it has one, by ExecuTorch's own
ahead-of-time packages. The keyword parameters of these two functions are the options of the
backend: `-X vulkan.force_fp16=true` is `vulkan.partitioners(force_fp16=True)`.

Packages add backends by an entry point of the group `etscope.backends`, whose name is the
backend's. It is a `Backend`, or just a function that returns partitioners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from etscope.backends import native, openvino, xnnpack
from etscope.backends.arm import export as arm
from etscope.backends.common.options import Option, options_of, parsed
from etscope.backends.coreml import export as coreml
from etscope.backends.vulkan import export as vulkan
from etscope.errors import UsageError
from etscope.support.optional import require

PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class Backend:
    """Recipe of a backend: how to lower to it.

    summary: one line about it.
    partitioners: makes the partitioners of `to_edge_transform_and_lower`; None: no delegate. A
        parameter `quantize` is given to it: True if the export quantises.
    quantizer: makes a quantizer for `prepare_pt2e`.
    requires: modules beside ExecuTorch that the two functions import.
    edge_config: fields of `EdgeCompileConfig` that it needs.
    fold_quantize: as for `convert_pt2e`: weights are kept in int8.
    keeps_float: its quantizer leaves nodes alone that are annotated already.
    if_untaken: what may be wrong if it takes no operator of a model; a sentence.
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
        """Return its options by name: those of its partitioners, then others of its quantizer."""
        found: dict[str, Option] = {}
        for function in (self.partitioners, self.quantizer):
            if function is not None:
                found = found | {k: v for k, v in options_of(function).items() if k not in found}
        found.pop("quantize", None)
        return found


BACKENDS: Mapping[str, Backend] = {
    PORTABLE: Backend("no delegate: ExecuTorch's portable kernels, which run everywhere, slowly"),
    "xnnpack": Backend(
        "XNNPACK, for CPUs",
        xnnpack.partitioners,
        xnnpack.quantizer,
        keeps_float=True,
    ),
    "vulkan": Backend(
        "Vulkan, for GPUs of Android and others",
        vulkan.partitioners,
        vulkan.quantizer,
        keeps_float=True,
    ),
    "webgpu": Backend(
        "WebGPU, for browsers: the programs are those of Vulkan",
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
    "openvino": Backend(
        "OpenVINO, for Intel's CPUs, GPUs and NPUs",
        openvino.partitioners,
        openvino.quantizer,
        requires=("openvino", "nncf"),
        fold_quantize=False,
    ),
    "ethos-u": Backend(
        "Arm's Ethos-U NPUs, compiled by Vela",
        arm.ethos_u_partitioners,
        arm.ethos_u_quantizer,
        requires=("tosa_serializer", "ethosu.vela"),
        if_untaken="An Ethos-U takes int8 only: quantise the model (--quantize)",
    ),
    "tosa": Backend(
        "TOSA, the operator set of Arm's backends; for looking at, no runtime takes it",
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
        native.partitioners,
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
        """Make its partitioners. Raises `MissingDependencyError`."""
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
        """Make its quantizer, which it must have. Raises `MissingDependencyError`."""
        function = self.backend.quantizer
        if function is None:
            raise UsageError(f"the backend {self.name!r} has no quantizer")
        self.check_packages()
        taken = options_of(function)
        return function(**{k: v for k, v in self.options.items() if k in taken})

    def check_packages(self) -> None:
        """Raise `MissingDependencyError` for a package that the backend needs and that is not
        installed."""
        for module in self.backend.requires:
            require(module, wanted_by=f"the backend {self.name!r}")


def chosen(names: str, options: Mapping[str, Any] | None = None) -> tuple[Chosen, ...]:
    """Return the backends of these names, separated by commas, in order, with their options.

    options: values by name, or by "backend.name"; a text is converted to the option's type.

    Raises `UsageError` for an unknown backend, and for an option that none of them has, that more
    than one has, or whose value is not of its type.
    """
    parts = [name.strip() for name in names.split(",")]
    found = {name: _backend(name) for name in parts}
    if len(found) < len(parts):
        raise UsageError(f"a backend is named twice: {names}")
    if PORTABLE in found and len(found) > 1:
        raise UsageError(
            f"{PORTABLE!r} is no delegate, and cannot be combined",
            hint="leave it out: what no backend takes runs on portable kernels",
        )
    given: dict[str, dict[str, Any]] = {name: {} for name in found}
    for key, value in (options or {}).items():
        name, option = _option(key, found)
        given[name][option.name] = parsed(value, option, f"{name}.{option.name}")
    return tuple(Chosen(name, backend, given[name]) for name, backend in found.items())


def quantizing(found: Sequence[Chosen]) -> Chosen:
    """Return the backend whose quantizer quantises the model: the first that has one.

    Raises `UsageError` if none has.
    """
    for one in found:
        if one.backend.quantizer is not None:
            return one
    names = " and ".join(one.name for one in found)
    having = [name for name, one in BACKENDS.items() if one.quantizer is not None]
    raise UsageError(
        f"the backend {names!r} has no quantizer: its kernels compute in floating point, so a "
        "quantised program would only be slower there",
        hint=f"backends with one: {', '.join(having)}",
    )


def check_options(found: Sequence[Chosen], quantize: bool) -> None:
    """Raise `UsageError` for a backend without a quantizer that is to quantise, and for an option
    of a quantizer that is not used."""
    used = quantizing(found) if quantize else None
    for one in found:
        own = {} if one.backend.partitioners is None else options_of(one.backend.partitioners)
        for name in one.options:
            if name in own or one is used:
                continue
            if used is None:
                raise UsageError(
                    f"the option {name!r} is for the quantizer of {one.name}",
                    hint="add --quantize (quantize=True)",
                )
            raise UsageError(
                f"the option {name!r} is for the quantizer of {one.name}, and the one of "
                f"{used.name} is used",
                hint=f"name {one.name} before {used.name}",
            )


def _option(key: str, found: Mapping[str, Backend]) -> tuple[str, Option]:
    """Find the option that a key names, and whose it is."""
    name, dot, wanted = key.rpartition(".")
    if dot and name not in found:
        raise UsageError(
            f"the option {key!r} is for a backend that is not chosen",
            hint=f"the backends are: {', '.join(found)}",
        )
    asked = {name: found[name]} if dot else found
    having = [one for one, backend in asked.items() if wanted in backend.options()]
    if len(having) > 1:
        raise UsageError(
            f"the option {key!r} is one of several backends",
            hint=f"say of which: {' or '.join(f'{one}.{wanted}' for one in having)}",
        )
    if not having:
        lines = []
        for one, backend in asked.items():
            options = [f"\n    {option}" for option in backend.options().values()]
            lines.append(f"\n  {one}:{''.join(options) or ' none'}")
        raise UsageError(f"there is no option {key!r}", hint=f"the options are:{''.join(lines)}")
    return having[0], asked[having[0]].options()[wanted]


def _backend(name: str) -> Backend:
    if name in BACKENDS:
        return BACKENDS[name]
    added = _entries()
    if name not in added:
        raise UsageError(
            f"unknown backend {name!r}", hint=f"backends are: {', '.join([*BACKENDS, *added])}"
        )
    entry = added[name]
    try:
        value = entry.load()
    except Exception as error:
        raise UsageError(
            f"the backend {name!r} of another package cannot be loaded: {error}",
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


__all__ = ["BACKENDS", "Backend", "Chosen", "Option", "check_options", "chosen", "quantizing"]
