"""The quantities of one side of a check, and their form in JSON: a baseline.

The member "new" of the JSON that `etscope check` writes is a baseline of later checks::

    {"name": "ran", "paths": {"run": "ran", "record": "ran/model.etrecord"},
     "program_sha256": "…", "executorch": "1.5.1",
     "operators": {"forward: XnnpackBackend: FullyConnected": 9},
     "missing": {"sqnr": "the run has no expected outputs"},
     "amounts": [{"quantity": "size", "method": null, "value": 419752, "unknown": [],
                  "basis": {}, "samples": [],
                  "parts": [{"name": "weights", "value": 65536, "module": "blocks.0.up",
                             "source": "/home/me/net.py:12", "text": null}]}]}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etscope.errors import FormatError, MissingDataError, VersionError, reading
from etscope.formats.bytes.files import BytesLike, PathLike
from etscope.formats.json_values import JsonValue, read_json, to_json
from etscope.support.shown import Shown
from etscope.units import TimeScale

SCHEMA = "etscope.check/1"
_KIND = "check"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that a check compares.

    option: of its threshold. limit: the default. unit: "%" for a relative growth, "points" for a
    fall of a share, "dB" for a fall of decibels, "" for a number of parts that BASE does not have.
    measured_in: the unit of its values.
    """

    name: str
    title: str
    option: str
    limit: str
    unit: str = "%"
    measured_in: str = "number"


# Defaults: 2 % leaves room for padding and tables of a program. Processes that run one program
# differ by a few percent in time. 1 dB is a fourth more noise.
QUANTITIES = (
    Quantity("size", "program bytes", "max_size", "2%", measured_in="bytes"),
    Quantity("memory", "planned memory", "max_memory", "2%", measured_in="bytes"),
    Quantity("flops", "FLOPs", "max_flops", "2%", measured_in="FLOPs"),
    Quantity("bytes", "bytes moved", "max_bytes", "2%", measured_in="bytes"),
    Quantity(
        "delegated", "delegated share", "max_undelegated", "1%", "points", measured_in="share"
    ),
    Quantity("kernels", "kernels to register", "max_kernels", "0", ""),
    Quantity("interface", "inputs and outputs", "max_interface", "0", ""),
    Quantity("faults", "faults of the program", "max_faults", "0", ""),
    Quantity("sqnr", "SQNR of outputs", "max_sqnr_drop", "1dB", "dB", measured_in="dB"),
    Quantity(
        "worst_sample", "SQNR of the worst sample", "max_worst_drop", "3dB", "dB", measured_in="dB"
    ),
    Quantity("time", "time", "max_time", "5%", measured_in="ns"),
)
BY_NAME = {one.name: one for one in QUANTITIES}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an amount: the bytes of an owner, an operator's FLOPs, a kernel, a fault.

    source: the line of Python, with the path of its file. text: a sentence about it.
    """

    name: str
    value: float = 1.0
    module: str | None = None
    source: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity of the program (method None), or of a method.

    unknown: what the value excludes. basis: must be the same on both sides, if both know it: the
    processor for times, the inputs for outputs. samples: for a time, the ticks of each counted run.
    """

    quantity: str
    method: str | None
    value: float
    parts: tuple[Part, ...] = ()
    unknown: tuple[str, ...] = ()
    basis: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured(Shown):
    """One side of a check.

    paths: of its "run" (the folder of all files), "dump", "record" and "program", where known.
    operators: calls by method, backend and operator; data of an unknown backend counts as one
    operator. missing: why a quantity is not here, by its name.
    """

    name: str
    paths: Mapping[str, str]
    program_sha256: str | None
    executorch: str | None
    operators: Mapping[str, int]
    missing: Mapping[str, str]
    amounts: tuple[Amount, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of a baseline."""
        return to_json(self)

    @property
    def files(self) -> tuple[str, ...]:
        """The arguments of a command on it."""
        run = self.paths.get("run")
        return tuple(self.paths.values()) if run is None else (run,)

    def only(self, method: str) -> Measured:
        """Return the amounts of the program and of one method, with its phases. Raises
        `MissingDataError` for an unknown method."""
        found = [one for one in self.amounts if (one.method or "").partition(" ")[0] == method]
        if not found:
            known = dict.fromkeys(one.method for one in self.amounts if one.method)
            raise MissingDataError(
                f"{self.name} has no method {method!r}", hint=f"it has: {', '.join(known)}"
            )
        kept = (one for one in self.amounts if one.method is None or one in found)
        return replace(self, amounts=tuple(kept))

    @property
    def modules(self) -> frozenset[str]:
        """The modules of its parts, without the root."""
        return frozenset(part.module for one in self.amounts for part in one.parts if part.module)


def is_baseline(path: PathLike) -> bool:
    """Return True for a file that starts as JSON does."""
    found = Path(path)
    if not found.is_file():
        return False
    with reading(_KIND, path), found.open("rb") as file:
        return file.read(64).lstrip()[:1] == b"{"


def read_baseline(data_or_path: BytesLike | PathLike) -> Measured:
    """Read the measured side of a JSON file of `etscope check`.

    Raises `FormatError` for another file, `VersionError` for another version of its schema.
    """
    given = read_json(data_or_path, _KIND)
    path = str(data_or_path) if isinstance(data_or_path, (str, Path)) else None
    with reading(_KIND, path):
        schema = given.optional("schema", JsonValue.text) or "no schema"
        if schema != SCHEMA:
            error = VersionError if schema.startswith("etscope.check/") else FormatError
            raise error(
                f"this has {schema}; a baseline has {SCHEMA}",
                hint="write one with etscope check RUN -o FILE.json; of a run, name the folder",
            )
        new = given.get("new")
        return Measured(
            new.get("name").text(),
            _texts(new.get("paths")),
            new.optional("program_sha256", JsonValue.text),
            new.optional("executorch", JsonValue.text),
            {name: one.whole() for name, one in new.get("operators").members().items()},
            _texts(new.get("missing")),
            tuple(_amount(one) for one in new.entries("amounts")),
        )


def _texts(given: JsonValue) -> dict[str, str]:
    return {name: one.text() for name, one in given.members().items()}


def _amount(given: JsonValue) -> Amount:
    basis = given.get("basis")
    basis.optional("clock", lambda one: one.text([scale.value for scale in TimeScale]))
    return Amount(
        given.get("quantity").text([*BY_NAME]),
        given.optional("method", JsonValue.text),
        given.get("value").any_number(),
        tuple(one.read_as(Part) for one in given.entries("parts")),
        given.texts("unknown"),
        _texts(basis),
        tuple(one.number() for one in given.entries("samples")),
    )
