"""Make the recorded runs of `tests/corpus/runs` anew, or compare them with new ones.

    python -m tests.support.make_corpus              makes those whose sources have changed
    python -m tests.support.make_corpus NAME …       makes these
    python -m tests.support.make_corpus --check      makes all anew beside, and compares (nightly)

An artefact is kept if its archive is at most 1.5 MB: larger ones are built where they are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from etscope.errors import FormatError
from etscope.formats.etdump.reader import read_etdump
from tests.support import artifacts, corpus
from tests.support.artifacts import RECIPES, SLOW, ArtifactUnavailable, source_hash

LARGEST = 1_500_000  # bytes of an archive
NOTES = ("seed", "planted", "file", "line", "module", "runs")  # of a recipe, for the manifest


def make(names: Iterable[str]) -> None:
    """Build artefacts, pack them, and write the manifest."""
    entries = dict(corpus.manifest())
    for name in names:
        try:
            made = artifacts.artifacts(name)
        except ArtifactUnavailable as reason:
            print(f"{name:32} not made: {reason}")
            continue
        size = corpus.pack(made.folder, name)
        if size > LARGEST:
            corpus.archive(name).unlink()
            print(f"{name:32} {size:>9,} bytes: too large")
            entries.pop(name, None)
            continue
        print(f"{name:32} {size:>9,} bytes", flush=True)
        entries[name] = {
            "sources": source_hash(RECIPES[name]),
            "versions": artifacts.versions(),
            **{note: made.meta[note] for note in NOTES if note in made.meta},
        }
        _write(entries)


def _write(entries: Mapping[str, object]) -> None:
    """Write the manifest, and remove archives that no recipe is of."""
    kept = {name: entries[name] for name in sorted(entries) if name in RECIPES}
    for path in corpus.RUNS.glob("*.tar.xz"):
        if path.name.removesuffix(".tar.xz") not in RECIPES:
            path.unlink()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in kept)
    corpus.MANIFEST.write_text(f"{{\n{lines}\n}}\n")


def differences(name: str, old: Path, new: Path) -> Iterator[str]:
    """What two makings of an artefact differ in: files, operators, outputs, notes."""
    files = [{path.name for path in folder.iterdir()} - {"build.log"} for folder in (old, new)]
    if files[0] != files[1]:
        yield f"{name}: files {sorted(files[0] ^ files[1])}"
    for file in sorted(files[0] & files[1]):
        before, after = old / file, new / file
        if file.endswith(".etdp") and _strings(before) != _strings(after):
            yield f"{name}: other events in {file}"
        elif file in ("outputs.npz", "reference.npz"):
            with np.load(before) as first, np.load(after) as second:
                for key in first:
                    if not np.allclose(first[key], second[key], 1e-3, 1e-4, equal_nan=True):
                        yield f"{name}: other numbers in {file}, {key}"
        elif file == "meta.json":
            one, other = (json.loads(path.read_text()) for path in (before, after))
            if changed := [note for note in NOTES if one.get(note) != other.get(note)]:
                yield f"{name}: other {', '.join(changed)}"


def _strings(dump: Path) -> object:
    """The strings of a dump; None of one that the runtime writes broken."""
    try:
        return read_etdump(dump).strings
    except FormatError:
        return None


def check(names: Iterable[str]) -> list[str]:
    """Make each archive's artefact anew in a folder of its own; return what is different."""
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            old = Path(folder) / f"old-{name}"
            old.mkdir()
            corpus.unpack(name, old)
            os.environ.update(ETSCOPE_CORPUS="off", ETSCOPE_ARTIFACTS=f"{folder}/new")
            found += differences(name, old, artifacts.artifacts(name).folder)
    return found


def main() -> int:
    """Make or check what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*RECIPES, []])
    parser.add_argument("--check", action="store_true", help="compare with what is made anew")
    given = parser.parse_args()
    if given.check:
        found = check(given.names or corpus.manifest())
        print(*found or ["the corpus is as it is made now"], sep="\n")
        return 1 if found else 0
    make(
        given.names
        or [name for name in RECIPES if name not in SLOW and not artifacts.is_packed(name)]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
