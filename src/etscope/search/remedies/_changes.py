"""`Change`: what a remedy changes of an export or a run; `Setting`: all options of both."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from etscope.backends.registry.export_options import export_words
from etscope.errors import UsageError
from etscope.model.finding import Finding

QUANTIZE, KEEP_FLOAT, PASS, THREADS = "quantize", "keep_float", "pass", "threads"
# All that are tried, in the order that they are made in: later ones depend on the backend and type.
_CHANGES = ("backend", "dtype", QUANTIZE, KEEP_FLOAT, "channels_last", PASS, THREADS)
# Several of these can be made together; of the others, one.
_SEVERAL = (KEEP_FLOAT, PASS)
_FLOAT32 = ("float32", "float")


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """All options of an export and a run.

    export: options of `etscope.export.export`. threads: the runtime's thread pool size.
    """

    export: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None

    @property
    def quantizes(self) -> bool:
        """True if the export loses precision on purpose."""
        return bool(self.export.get(QUANTIZE) or self.export.get("quantize_embeddings"))

    @property
    def passes(self) -> Sequence[str]:
        return self.export.get("passes") or ()

    @property
    def of_export(self) -> str:
        """The options that a program depends on and that a search changes."""
        options = {k: v for k, v in self.export.items() if k != "calibration"}
        return repr(sorted(options.items()))

    def command(self, spec: str, words: Sequence[str] = ()) -> str:
        """The command that exports a model with this setting; words: further options."""
        return shlex.join(["etscope", "export", spec, *export_words(self.export), *words])


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A change of a setting, by the same names as in `Remedy.change`.

    text: the remedy in words. finding: the kind of finding that the change is a remedy for; None
    for a general change. share: the share of the time that the finding explains.
    """

    name: str
    arguments: Mapping[str, Any]
    text: str = ""
    finding: str | None = None
    share: float | None = None

    @property
    def words(self) -> str:
        """The name for tables and state files: "pass fuse_sdpa"."""
        given = " ".join(str(one) for one in self.arguments.values())
        return f"{self.name} {given}".strip()

    def excludes(self, other: Change) -> bool:
        """Return whether both cannot be made together."""
        return self.name == other.name and self.name not in _SEVERAL

    def applied(self, setting: Setting) -> Setting:
        """Return the setting with the change. Raises `UsageError`, with the reason, for one that
        is not known, or changes nothing."""
        if self.name not in _CHANGES:
            known = ", ".join(_CHANGES)
            raise UsageError(f"not implemented: only {known} are tried")
        try:
            return _changed(setting, self.name, self.arguments)
        except KeyError as error:
            raise UsageError(f"the remedy does not say its {error.args[0]}") from error


def changes_of(findings: Iterable[Finding]) -> list[Change]:
    """The changes that findings have as remedies, each once, those with most time at stake first
    as the findings are."""
    found: dict[str, Change] = {}
    for finding in findings:
        share = None if finding.quantity is None else finding.quantity.share
        for remedy in () if finding.explanation is None else finding.explanation.remedies:
            if remedy.change is not None:
                one = Change(remedy.change, remedy.arguments, remedy.text, finding.kind, share)
                found.setdefault(one.words, one)
    return list(found.values())


def general_changes(setting: Setting, allowed: Sequence[str], cores: int) -> list[Change]:
    """Changes that are worth a try with any model. allowed: contains "quantize" if numbers may
    change by more than rounding.
    """
    found = [
        Change("backend", {"backend": "xnnpack"}, "Lower it to XNNPACK."),
        Change(PASS, {"name": "fuse_sdpa"}, "Lower attention with a plain softmax."),
        Change(PASS, {"name": "fold_constants"}, "Compute constants when it is exported."),
        Change("channels_last", {}, "Lay images out with channels last."),
    ]
    counts = dict.fromkeys((1, 2, 4, 8, cores))
    found += [
        Change(THREADS, {"threads": count}, f"Run on {count} threads.")
        for count in counts
        if count <= cores and count != setting.threads
    ]
    if QUANTIZE in allowed and not setting.export.get(QUANTIZE):
        found += [
            Change(QUANTIZE, {"scheme": scheme}, f"Quantize it: {scheme}.")
            for scheme in ("int8", "8da8w", "8da4w")
        ]
    return found


def setting_with(changes: Iterable[Change], base: Setting) -> Setting:
    """The setting with several changes: a backend first, as others depend on it."""
    ordered = sorted(
        changes,
        key=lambda one: _CHANGES.index(one.name) if one.name in _CHANGES else len(_CHANGES),
    )
    for change in ordered:
        base = change.applied(base)
    return base


def _changed(setting: Setting, name: str, given: Mapping[str, Any]) -> Setting:
    """The setting with a change; see `Change.applied`. Raises `KeyError` for a missing argument."""
    export = setting.export
    backend, scheme = export.get("backend", "portable"), export.get(QUANTIZE)
    if name == "backend":
        if backend == (wanted := str(given["backend"])):
            raise UsageError(f"the model is lowered to {wanted} already")
        return _exported(setting, backend=wanted, backend_options={})
    if name == "dtype":
        if str(given["dtype"]).removeprefix("torch.") not in _FLOAT32:
            raise UsageError(
                f"not implemented: a model in {given['dtype']}; only float32 can be tried"
            )
        return _exported(setting, passes=_more(setting, "passes", "to_float32"))
    if name == QUANTIZE:
        wanted = str(given["scheme"])
        if wanted == ("int8" if scheme is True else scheme):
            raise UsageError(f"the model is quantized to {wanted} already")
        if scheme and wanted != "int8":  # only int8 is calibrated, and kept in float in parts
            setting = _exported(setting, keep_float=(), calibration=None)
        return _exported(setting, quantize=wanted)
    if name == KEEP_FLOAT:
        if not scheme:
            raise UsageError("the model is in float throughout")
        return _exported(setting, keep_float=_more(setting, KEEP_FLOAT, str(given["select"])))
    if name == PASS:
        wanted = str(given["name"])
        if wanted == "keep_linear" and backend != "portable":
            raise UsageError("a backend's partitioner chooses what stays whole")
        return _exported(setting, passes=_more(setting, "passes", wanted))
    if name == THREADS:
        return replace(setting, threads=int(given["threads"]))
    return _exported(setting, passes=_more(setting, "passes", "channels_last"))


def _exported(setting: Setting, **options: Any) -> Setting:
    return replace(setting, export={**setting.export, **options})


def _more(setting: Setting, option: str, value: str) -> tuple[str, ...]:
    """Return the values of an option that takes several, with one more."""
    before = setting.export.get(option) or ()
    known = (before,) if isinstance(before, str) else tuple(before)
    if value in known:
        raise UsageError(f"the export has {option}={value!r} already")
    return (*known, value)
