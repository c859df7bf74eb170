"""Files of `torch.export.save` (.pt2): a zip of a program's JSON, its weights, and sample inputs.

    archive_format                        "pt2"
    models/NAME.json                      the program, of torch's own schema
    data/weights/NAME_weights_config.json where each weight is: a file, type, sizes, strides
    data/weights/weight_0 ...             bytes of a storage
    data/constants/...                    the same for tensors that are no weights
    data/sample_inputs/NAME.pt            example inputs, by `torch.save`

All below a folder of any name. The format lets a file run code in many places: pickled weights and
objects, guards and symbolic sizes that are evaluated, names that become Python source, operators
that are any function of torch, containers that import modules. What is read here has none of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.bytes.zip_archive import ZipArchive, open_archive
from etscope.formats.exported_program.exported_json import mapping, parse_json, text
from etscope.formats.exported_program.safety import PT2_RULES, check_values

KIND = ".pt2 file"
_FACTORY = PT2_RULES.without_own
_OLD = "serialized_exported_program.json"  # PyTorch 2.7 and before
_PAYLOADS = (("data/weights/", "weights"), ("data/constants/", "constants"))


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """A weight or constant: the bytes of its storage, which others may share, and its description
    (`TensorMeta` of torch's schema)."""

    file: str
    data: memoryview
    is_parameter: bool
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pt2Program:
    """A program that holds nothing to run. `sample_inputs` are a `torch.save` file or empty."""

    name: str
    json: bytes
    weights: Mapping[str, Payload]
    constants: Mapping[str, Payload]
    sample_inputs: memoryview


def is_pt2(data: memoryview) -> bool:
    """Whether it seems to be a file of `torch.export.save`."""
    try:
        archive = open_archive(data, KIND)
    except FormatError:
        return False
    return _OLD in archive.members or _root(archive) is not None


def read_pt2(data: memoryview, path: str | None = None) -> dict[str, Pt2Program]:
    """name -> program of a .pt2 file.

    Raises `FormatError` for what is damaged, or might run code when torch loads it.
    """
    with reading(KIND, path):
        archive = open_archive(data, KIND, path)
        if _OLD in archive.members:
            raise VersionError(
                "written by PyTorch 2.7 or before", hint="save it again with a newer one"
            )
        root = _root(archive)
        if root is None:
            raise FormatError("no archive_format member that says pt2")
        start, end = f"{root}models/", ".json"
        names = [
            member[len(start) : -len(end)]
            for member in archive.members
            if member.startswith(start) and member.endswith(end)
        ]
        if not names:
            raise FormatError("the archive holds no exported program", hint=_FACTORY)
        return {name: _read_program(archive, root, name) for name in names}


def _root(archive: ZipArchive) -> str | None:
    """The folder that all is in, with its slash."""
    for member in archive.members:
        if member.endswith("archive_format") and bytes(archive.read(member)) == b"pt2":
            return member.removesuffix("archive_format")
    return None


def _read_program(archive: ZipArchive, root: str, name: str) -> Pt2Program:
    member = f"{root}models/{name}.json"
    with reading(KIND, archive.path, member=member):
        program = mapping(parse_json(archive.read(member)), "a program")
        # Conditions on inputs, as Python text that torch executes. Inputs are ours: none are lost.
        program["guards_code"] = []
        content = json.dumps(program).encode()
        check_values(program, PT2_RULES)
    weights, constants = (
        _read_payloads(archive, root, folder, f"{root}{folder}{name}_{kind}_config.json")
        for folder, kind in _PAYLOADS
    )
    sample = f"{root}data/sample_inputs/{name}.pt"
    inputs = archive.read(sample) if sample in archive.members else memoryview(b"")
    return Pt2Program(name, content, weights, constants, inputs)


def _read_payloads(archive: ZipArchive, root: str, folder: str, config: str) -> dict[str, Payload]:
    if config not in archive.members:
        raise VersionError(
            "weights in one pickle, as PyTorch 2.8 and before wrote them",
            member=config,
            hint="save it again with a newer one",
        )
    with reading(KIND, archive.path, member=config):
        entries = mapping(mapping(parse_json(archive.read(config)), "it")["config"], "config")
        return {
            name: _payload(archive, f"{root}{folder}", name, mapping(entry, "an entry"))
            for name, entry in entries.items()
        }


def _payload(archive: ZipArchive, folder: str, name: str, entry: dict[str, Any]) -> Payload:
    file = text(entry["path_name"], "path_name")
    if entry.get("use_pickle") or not file.startswith(("weight_", "tensor_")):
        raise FormatError(
            f"{name} is stored as a pickle, which could run code when it is loaded", hint=_FACTORY
        )
    meta = mapping(entry["tensor_meta"], "tensor_meta")
    return Payload(file, archive.read(folder + file), bool(entry["is_param"]), meta)
