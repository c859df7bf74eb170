"""Models with one inefficiency each, and models without; with the truth of what is slow where."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import nn

from tests.support.explain import architectures as a
from tests.support.explain import plants as p

FLOAT8, NIBBLES = {"quantize": "8da8w"}, {"quantize": "8da4w"}
INT8 = {"quantize": "int8"}


@dataclass(frozen=True)
class Made:
    """A model ready for export. places: of what is planted; None where it is the whole model."""

    model: nn.Module
    inputs: a.Inputs
    export: Mapping[str, Any]
    run: Mapping[str, Any]
    places: Places | None


@dataclass(frozen=True)
class Places:
    """The modules of what is planted, and the lines of its classes by name of the file."""

    modules: frozenset[str]
    lines: frozenset[str]

    def holds(self, module: str | None, line: str | None) -> bool:
        """Return whether an operator of that module and line ("plants.py:12") is planted."""
        parts = (module or "").split(".")
        below = {".".join(parts[: end + 1]) for end in range(len(parts))}
        return not self.modules.isdisjoint(below) or line in self.lines


@dataclass(frozen=True)
class Seeded:
    """One inefficiency: what is planted into an architecture, of which kind (of `scoring.KINDS`).

    parts: what is planted. dtype, export, run: of the seeded model; clean: the options of the
    export of the clean one, which is else like `shared`. is_everywhere: the whole model is slow.
    keeps_float: the block that the seed marks stays in float.
    """

    kind: str
    architecture: a.Architecture
    parts: a.Parts = field(default_factory=dict)
    dtype: torch.dtype | None = None
    export: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, Any] = field(default_factory=dict)
    clean: Mapping[str, Any] = field(default_factory=dict)
    is_everywhere: bool = False
    keeps_float: bool = False

    def made(self, seed: str) -> Made:
        """The model with what is planted."""
        model, inputs = _drawn(self.architecture, self.parts, seed)
        more: dict[str, Any] = {}
        if self.keeps_float:
            more = {"keep_float": f"module:{model.marked}"}
            places: Places | None = Places(frozenset({str(model.marked)}), frozenset())
        else:
            places = None if self.is_everywhere else _places(model)
        if self.dtype is not None:
            model = model.to(self.dtype)
            inputs = tuple(one.to(self.dtype) if one.is_floating_point() else one for one in inputs)
        return Made(model, inputs, {**self.shared, **self.export, **more}, self.run, places)

    def without(self, seed: str) -> Made:
        """The same model without it."""
        model, inputs = _drawn(self.architecture, {}, seed)
        return Made(model, inputs, {**self.shared, **self.clean}, {}, None)


def _drawn(architecture: a.Architecture, parts: a.Parts, seed: str) -> tuple[nn.Module, a.Inputs]:
    torch.manual_seed(Random(seed).getrandbits(32))
    model, inputs = architecture(Random(seed), parts)
    return model.eval(), inputs


def _places(model: nn.Module) -> Places:
    planted = {name: one for name, one in model.named_modules() if isinstance(one, p.Planted)}
    assert planted
    lines = set()
    for kind in {type(one) for one in planted.values()}:
        code, begin = inspect.getsourcelines(kind)
        lines |= {f"plants.py:{line}" for line in range(begin, begin + len(code))}
    return Places(frozenset(planted), frozenset(lines))


@dataclass(frozen=True)
class Clean:
    """A model without a planted inefficiency."""

    architecture: a.Architecture
    parts: a.Parts = field(default_factory=dict)
    export: Mapping[str, Any] = field(default_factory=dict)

    def made(self, seed: str) -> Made:
        model, inputs = _drawn(self.architecture, self.parts, seed)
        return Made(model, inputs, self.export, {}, None)


def _between(kind: str, architecture: a.Architecture, part: type[nn.Module], **more: Any) -> Seeded:
    return Seeded(kind, architecture, {"between": part}, **more)


SEEDED: dict[str, Seeded] = {
    "running mean": _between("island", a.mlp, p.RunningMean),
    "squashed by erf": _between("island", a.mixture, p.ErrorFunction),
    "threshold": _between("island", a.cnn, p.Thresholded),
    "mirrored images": _between("island", a.residual, p.Mirrored),
    "shifted windows": _between("island", a.mobile, p.Shifted),
    "largest values": _between("island", a.transformer, p.Ranked),
    "threshold among int8": _between("island in int8", a.residual, p.Thresholded, shared=INT8),
    "group norm": Seeded("island", a.residual, {"norm": p.Grouped}),
    "nearest pixels": Seeded("island", a.unet, {"upsample": p.Nearest}),
    "threshold of a step": _between("island", a.recurrent, p.Thresholded),
    "double precision": _between("part in another type", a.mlp, p.InDouble),
    "double precision of sound": _between("part in another type", a.audio, p.InDouble),
    "matrix in bfloat16": _between("part in another type", a.transformer, p.InBfloat16),
    "bfloat16 MLP": Seeded("type", a.mlp, dtype=torch.bfloat16, is_everywhere=True),
    "bfloat16 step": Seeded("type", a.decoder, dtype=torch.bfloat16, is_everywhere=True),
    "double CNN": Seeded("type", a.cnn, dtype=torch.float64, is_everywhere=True),
    "fused attention": Seeded("safe softmax", a.transformer, {"attention": p.Fused}),
    "fused attention of patches": Seeded("safe softmax", a.vit, {"attention": p.Fused}),
    "fused attention, masked": Seeded("safe softmax", a.causal_transformer, {"attention": p.Fused}),
    "fused causal attention": Seeded(
        "safe softmax", a.causal_transformer, {"attention": p.FusedCausal}
    ),
    "norm in parts": Seeded("in parts", a.transformer, {"norm": p.NormInParts}),
    "softmax in parts": Seeded("in parts", a.vit, {"attention": p.SoftmaxInParts}),
    "GELU by erf": Seeded("in parts", a.mlp, {"activation": p.GeluByErf}),
    "GELU by tanh": Seeded("in parts", a.vit, {"activation": p.GeluByTanh}),
    "mish in parts": Seeded("island", a.mobile, {"activation": p.Mish}),
    "transposed weight": _between("weight prepared", a.mlp, p.TransposedWeight),
    "transposed kernel": _between("weight prepared", a.cnn, p.TransposedKernel),
    "tied head": Seeded("weight prepared", a.decoder, {"head": p.TiedHead}),
    "expanded weight": _between("copies", a.mlp, p.ExpandedWeight),
    "scales along the last": _between("layout", a.cnn, p.ScaledAlongLast),
    "time and channels exchanged": _between("layout", a.audio, p.TransposedAround),
    "repeated heads": Seeded("copies", a.transformer, {"attention": p.InFourDimensions}),
    "every other token": _between("copies", a.transformer, p.Dilated),
    "repeated heads of a cache": Seeded("copies", a.long_decoder, {"widen": p.Widened}),
    "mask in each call": Seeded("constant", a.causal_transformer, {"attention": p.MaskedEachTime}),
    "distances in each call": Seeded("constant", a.transformer, {"attention": p.RelativeEachTime}),
    "positions in each call": _between("constant", a.mlp, p.PlacesEachTime),
    "cosines in each call": _between("constant", a.audio, p.WindowEachTime),
    "flipped rows in int8": _between("cancelling", a.mlp, p.Flipped, shared=INT8),
    "flipped images in int8": _between("cancelling", a.cnn, p.Flipped, shared=INT8),
    "flipped small images in int8": _between("cancelling", a.mobile, p.Flipped, shared=INT8),
    "float block of an MLP": Seeded("float in int8", a.mlp, shared=INT8, keeps_float=True),
    "float convolution": Seeded("float in int8", a.cnn, shared=INT8, keeps_float=True),
    "float block by channel": Seeded("float in int8", a.mobile, shared=INT8, keeps_float=True),
    "portable MLP": Seeded(
        "nothing delegated", a.mlp, export={"backend": "portable"}, is_everywhere=True
    ),
    "portable step": Seeded(
        "nothing delegated", a.recurrent, export={"backend": "portable"}, is_everywhere=True
    ),
    "token by token": _between("tiny", a.mlp, p.TokenByToken),
    "channel by channel": _between("tiny", a.residual, p.ChannelByChannel),
    "many experts": Seeded("tiny", a.mixture, {"experts": p.ManyExperts}),
    "cache by condition": Seeded("cache", a.decoder, {"cache": p.ChosenCache}),
    "cache that moves": Seeded("cache", a.long_decoder, {"cache": p.MovedCache}),
    "long cache": Seeded("cache", a.decoder, {"cache": p.LongCache}),
    "float weights of a step": Seeded("memory", a.wide_decoder, clean=FLOAT8, is_everywhere=True),
    "eight threads": Seeded("threads", a.mlp, run={"threads": 8}, is_everywhere=True),
}

CLEAN: dict[str, Clean] = {
    "MLP": Clean(a.mlp),
    "mixture": Clean(a.mixture),
    "CNN": Clean(a.cnn),
    "residual CNN": Clean(a.residual),
    "mobile CNN": Clean(a.mobile),
    "U-Net": Clean(a.unet),
    "audio encoder": Clean(a.audio),
    "transformer": Clean(a.transformer),
    "causal transformer": Clean(a.causal_transformer),
    "transformer with layer norm": Clean(a.transformer, {"norm": nn.LayerNorm}),
    "transformer with GELU": Clean(a.transformer, {"activation": nn.GELU}),
    "vision transformer": Clean(a.vit),
    "recurrent step": Clean(a.recurrent),
    "decoder step": Clean(a.decoder),
    "wide decoder step, 8 bits": Clean(a.wide_decoder, export=FLOAT8),
    "int8 MLP": Clean(a.mlp, export=INT8),
    "int8 CNN": Clean(a.cnn, export=INT8),
    "int8 residual CNN": Clean(a.residual, export=INT8),
    "int8 mobile CNN": Clean(a.mobile, export=INT8),
    "8 bits, transformer": Clean(a.transformer, export=FLOAT8),
    "4 bits, MLP": Clean(a.mlp, export=NIBBLES),
}
