"""Files of `torch.export.save` (.pt2): a zip of a program's JSON, its weights, and sample inputs.

    archive_format                        "pt2"
    models/NAME.json                      the program, of torch's own schema
    data/weights/NAME_weights_config.json where each weight is: a file, type, sizes, strides
    data/weights/weight_0 ...             bytes of a storage
    data/constants/...                    the same for tensors that are not weights
    data/sample_inputs/NAME.pt            example inputs, by `torch.save`

All are in one folder of any name. A file can run code in many places: pickled weights and objects,
evaluated guards and symbolic sizes, names that become Python source, operators that are any
function of torch, containers that import modules. This module rejects a file with any of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.bytes.zip_archive import ZipArchive, open_archive
from etscope.formats.exported_program.exported_json import mapping, parse_json, text
from etscope.formats.torch_files.program_safety import PT2_RULES, check_values

KIND = ".pt2 file"
_OLD = "serialized_exported_program.json"  # PyTorch 2.7 and before


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A weight or constant: the bytes of its storage, which may be shared, and its description
    (`TensorMeta` of torch's schema)."""

    file: str
    data: memoryview
    is_parameter: bool
    meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Pt2Program:
    """A program that does not run code when torch loads it. `sample_inputs` are a `torch.save` file
    or empty."""

    name: str
    json: bytes
    weights: Mapping[str, StoredTensor]
    constants: Mapping[str, StoredTensor]
    sample_inputs: memoryview


def is_pt2(data: memoryview) -> bool:
    """Return True if the file seems to come from `torch.export.save`."""
    try:
        archive = open_archive(data, KIND)
    except FormatError:
        return False
    return _OLD in archive.members or _root(archive) is not None


def read_pt2(data: memoryview, path: str | None = None) -> dict[str, Pt2Program]:
    """Read the programs of a .pt2 file, by name.

    Raises `FormatError` for a damaged file and for one that could run code when torch loads it.
    """
    with reading(KIND, path):
        archive = open_archive(data, KIND, path)
        if _OLD in archive.members:
            raise VersionError(
                "this .pt2 file is from PyTorch 2.7 or older",
                hint="export the model again with a newer PyTorch",
            )
        root = _root(archive)
        if root is None:
            raise FormatError("not a .pt2 file: it does not have a member archive_format with pt2")
        start, end = f"{root}models/", ".json"
        names = [
            member[len(start) : -len(end)]
            for member in archive.members
            if member.startswith(start) and member.endswith(end)
        ]
        if not names:
            raise FormatError(
                "the archive does not contain an exported program", hint=PT2_RULES.without_own
            )
        return {name: _read_program(archive, root, name) for name in names}


def _root(archive: ZipArchive) -> str | None:
    """Return the folder of all members, with its slash."""
    for member in archive.members:
        if member.endswith("archive_format") and bytes(archive.read(member)) == b"pt2":
            return member.removesuffix("archive_format")
    return None


def _read_program(archive: ZipArchive, root: str, name: str) -> Pt2Program:
    member = f"{root}models/{name}.json"
    with reading(KIND, archive.path, member=member):
        program = mapping(parse_json(archive.read(member)), "a program")
        # Conditions on inputs, as Python text that torch executes. etscope does not need them.
        program["guards_code"] = []
        content = json.dumps(program).encode()
        check_values(program, PT2_RULES)
    sample = f"{root}data/sample_inputs/{name}.pt"
    return Pt2Program(
        name,
        content,
        _read_tensors(archive, f"{root}data/weights/", f"{name}_weights_config.json"),
        _read_tensors(archive, f"{root}data/constants/", f"{name}_constants_config.json"),
        archive.read(sample) if sample in archive.members else memoryview(b""),
    )


def _read_tensors(archive: ZipArchive, folder: str, config: str) -> dict[str, StoredTensor]:
    if folder + config not in archive.members:
        raise VersionError(
            "the weights are one pickle, the format of PyTorch 2.8 and older",
            member=folder + config,
            hint="export the model again with a newer PyTorch",
        )
    tensors: dict[str, StoredTensor] = {}
    with reading(KIND, archive.path, member=folder + config):
        content = mapping(parse_json(archive.read(folder + config)), "it")
        for name, value in mapping(content["config"], "config").items():
            entry = mapping(value, "an entry")
            file = text(entry["path_name"], "path_name")
            if entry.get("use_pickle") or not file.startswith(("weight_", "tensor_")):
                raise FormatError(
                    f"{name} is a pickle, which could run code when torch loads it",
                    hint=PT2_RULES.without_own,
                )
            meta = mapping(entry["tensor_meta"], "tensor_meta")
            is_parameter = bool(entry["is_param"])
            tensors[name] = StoredTensor(file, archive.read(folder + file), is_parameter, meta)
    return tensors
