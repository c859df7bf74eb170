"""Recorded runs that are kept in git: small artefacts, packed.

Exports take seconds each, and a test that diagnoses a run needs the run's files only. So what
`tests.support.make_corpus` has made once is in `tests/corpus/runs`, an archive (`tar.xz`) for each
artefact, with a manifest: the versions, the hash of the sources, and what the recipe noted (seed,
what was planted, where). `artifacts()` unpacks an archive whose hash and versions are those of now,
and builds the artefact otherwise; with `ETSCOPE_CORPUS=off` it always builds.

Records hold the paths of the sources that they were exported from. In an archive these paths begin
with `ROOT_IN_ARCHIVE`, and unpacking puts this repository's folder there.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import tarfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "tests" / "corpus" / "runs"
MANIFEST = RUNS / "manifest.json"
ROOT_IN_ARCHIVE = b"/etscope-repository"
LEFT_OUT = ("build.log",)


@cache
def manifest() -> Mapping[str, Mapping[str, Any]]:
    """What is known of each archive, by the name of the artefact."""
    return json.loads(MANIFEST.read_text()) if MANIFEST.exists() else {}


def archive(name: str) -> Path:
    """Where the archive of an artefact is."""
    return RUNS / f"{name}.tar.xz"


def packed(name: str, sources: str, versions: str | None) -> Mapping[str, Any] | None:
    """The manifest's entry of an artefact, if its archive is of these sources and versions (None:
    of any, for an environment without torch)."""
    entry = manifest().get(name)
    if os.environ.get("ETSCOPE_CORPUS") == "off" or entry is None or entry["sources"] != sources:
        return None
    return entry if versions in (None, entry["versions"]) else None


def pack(folder: Path, name: str) -> int:
    """Write the archive of an artefact; return its size in bytes. The same folder gives the same
    bytes."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as written:
        for path in sorted(folder.iterdir()):
            if path.name not in LEFT_OUT:
                data = _changed(path.read_bytes(), _CHECKOUT, ROOT_IN_ARCHIVE, path.name)
                member = tarfile.TarInfo(path.name)
                member.size = len(data)
                written.addfile(member, io.BytesIO(data))
    RUNS.mkdir(parents=True, exist_ok=True)
    archive(name).write_bytes(lzma.compress(tar.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return archive(name).stat().st_size


def unpack(name: str, folder: Path) -> None:
    """Write the files of an artefact's archive into a folder."""
    with tarfile.open(archive(name), mode="r:xz") as tar:
        for member in tar:
            source = tar.extractfile(member)
            assert source is not None, member.name
            data = _changed(source.read(), _IN_ARCHIVE, os.fsencode(ROOT), member.name)
            (folder / member.name).write_bytes(data)


# The folder of the checkout that a recipe ran in, which need not be this one.
_CHECKOUT = re.compile(rb'(?:/[^/\s"\\]+)+?(?=/(?:tests/support|src/etscope|\.venv)/)')
_IN_ARCHIVE = re.compile(re.escape(ROOT_IN_ARCHIVE))


def _changed(data: bytes, pattern: re.Pattern[bytes], new: bytes, name: str) -> bytes:
    """Put another folder into the paths of text, also of text in the members of zip files."""
    if data.startswith(b"PK\x03\x04"):
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
            for info in source.infolist():
                member = _changed(source.read(info), pattern, new, f"{name}/{info.filename}")
                # Stored: xz finds more in what is not compressed yet.
                target.writestr(zipfile.ZipInfo(info.filename), member)
        return out.getvalue()
    if data.lstrip()[:1] in (b"{", b"["):
        return pattern.sub(new, data)
    # Of other formats, the length of a text would have to change, too.
    assert not pattern.search(data), f"{name} holds the path {pattern.search(data)}"
    return data
