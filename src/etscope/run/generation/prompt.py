"""The prompt of a generation: text through a tokenizer's file, ids, or ids drawn from a seed; and
the arrays of images and sound."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from etscope.analysis.generation.layout import Layout
from etscope.analysis.generation.plan import PLACE, Encoded, uniform
from etscope.errors import (
    EtscopeError,
    FormatError,
    MismatchError,
    MissingFileError,
    UsageError,
)
from etscope.formats.bytes.files import PathLike
from etscope.formats.program.input_validation import as_program_input, check_value
from etscope.formats.program.pte import Program
from etscope.run.inputs import generate_inputs, plain_value
from etscope.support.optional import require

__all__ = ["check_tokens", "tokens_from"]

_MOST_BYTES = 256 << 20  # of a file of ids
# A model's vocabulary is padded to a round number, by a few per cent at most.
_LEAST_SHARE = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Tokenizer:
    """A tokenizer.json, opened by the `tokenizers` library."""

    path: str
    sha256: str
    library: Any

    @property
    def size(self) -> int:
        return int(self.library.get_vocab_size(with_added_tokens=True))

    def ids(self, text: str) -> list[int]:
        """Encode a text, with the special tokens that the tokenizer adds to a prompt."""
        return list(self.library.encode(text).ids)

    def text(self, ids: Sequence[int]) -> str:
        """Decode ids, without special tokens."""
        known = [one for one in ids if one >= 0]
        return str(self.library.decode(known, skip_special_tokens=True))


def open_tokenizer(path: PathLike) -> Tokenizer:
    """Open a tokenizer.json. Raises `FormatError` for another file, `MissingDependencyError`
    without the library."""
    file = Path(path)
    if not file.is_file():
        raise MissingFileError(f"tokenizer not found: {file}")
    library = require("tokenizers", wanted_by="reading a tokenizer's file")
    content = file.read_bytes()
    try:
        found = library.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises Exception itself
        raise FormatError(
            f"not a tokenizer.json of the tokenizers library: {error}",
            path=file,
            hint="transformers' tokenizer.save_pretrained(DIR) writes a tokenizer.json; or give "
            "token ids: tokens= (--tokens)",
        ) from error
    return Tokenizer(os.fspath(file), hashlib.sha256(content).hexdigest(), found)


def check_tokenizer(tokenizer: Tokenizer, layout: Layout) -> None:
    """Raise `MismatchError` for a tokenizer with another vocabulary than the model's."""
    known, size = layout.vocabulary_size, tokenizer.size
    if _LEAST_SHARE * known <= size <= known:
        return
    raise MismatchError(
        f"this tokenizer is of another model: it has {size:,} tokens, and the program's vocabulary "
        f"{known:,}",
        hint="take the tokenizer.json of the model that was exported; verify=False (--force) goes "
        "on regardless",
    )


def tokens_from(given: str | PathLike | Sequence[int] | npt.NDArray[Any]) -> list[int]:
    """Return token ids from a sequence, from text ("1,5,9"), or from a file: such text, a .npy, or
    a .npz with one array or with an array named "tokens". -1 is the place of the next image or
    sound.

    Raises `UsageError` for text that is not ids, `MissingFileError` for a missing file.
    """
    if isinstance(given, (str, os.PathLike)):
        text = os.fspath(given)
        if "," in text or re.fullmatch(r"\s*-?\d+\s*", text):
            return _ids_of_text(text, "the tokens")
        return _ids_of_file(Path(text))
    array = np.asarray(given)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise UsageError(f"tokens are whole numbers, not {array.dtype}")
    return [int(one) for one in array.reshape(-1).tolist()]


def _ids_of_file(path: Path) -> list[int]:
    if not path.is_file():
        raise MissingFileError(
            f"no file of tokens: {path}", hint="give ids, 1,5,9, or a file with such a list"
        )
    if path.stat().st_size > _MOST_BYTES:
        raise FormatError(f"more than {_MOST_BYTES:,} bytes of tokens", path=path)
    if path.suffix in (".npy", ".npz"):
        try:
            found = np.load(path, allow_pickle=False)
            if isinstance(found, np.ndarray):
                return tokens_from(found)
            with found:
                name = found.files[0] if len(found.files) == 1 else "tokens"
                if name not in found.files:
                    raise FormatError(
                        f"none of its {len(found.files)} arrays is called tokens", path=path
                    )
                return tokens_from(found[name])
        except (ValueError, OSError, BadZipFile) as error:
            if isinstance(error, EtscopeError):
                raise
            raise FormatError(f"not a file of numpy: {error}", path=path) from error
    return _ids_of_text(path.read_text("utf-8", "replace"), str(path))


def _ids_of_text(text: str, where: str) -> list[int]:
    words = re.split(r"[\s,]+", text.strip("[] \n\r\t,")) if text.strip("[] \n\r\t,") else []
    for word in words:
        if not re.fullmatch(r"-?\d{1,18}", word):
            raise UsageError(f"{where}: {word!r:.40} is not a token id", hint="give ids: 1,5,9")
    return [int(word) for word in words]


def drawn_tokens(length: int, seed: int, vocabulary: int) -> list[int]:
    """Return ids below `vocabulary`, the same for a seed on each machine."""
    if length < 1:
        raise UsageError(f"a prompt has at least one token, not {length}")
    return [int(uniform(seed, step) * vocabulary) for step in range(length)]


def check_tokens(ids: Sequence[int], layout: Layout, what: str = "the prompt") -> None:
    """Raise `MismatchError` for ids that the model does not have."""
    for place, one in enumerate(ids):
        if not 0 <= one < layout.vocabulary_size:
            raise MismatchError(
                f"token {place} of {what} is {one}, and the program's vocabulary has "
                f"{layout.vocabulary_size:,} tokens, numbered from 0",
                hint="take the tokens of this model's own tokenizer",
            )


# -- images and sound


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """The arrays for the encoders. parts: what each encoder adds to the prompt, in the order of the
    encoders.
    """

    arrays: tuple[npt.NDArray[Any], ...]
    parts: tuple[Encoded, ...]


def encoder_inputs(
    program: Program, layout: Layout, given: Sequence[Any], seed: int | None
) -> Given:
    """Give arrays to the encoders, in order: each encoder takes as many arrays as it has inputs; an
    encoder is skipped if the next arrays do not fit it.

    seed: if no arrays are given, generate values for each call with this seed. Raises
    `MismatchError` for arrays that fit no encoder, or if one is missing.
    """
    encoders = layout.encoders if layout.source is None else (layout.source,)
    values = [plain_value(value, f"input {index}") for index, value in enumerate(given)]
    if not values and layout.source is not None and seed is not None:
        values = list(generate_inputs(program, layout.source.method, seed))
    arrays: list[Any] = []
    parts: list[Encoded] = []
    problem = None
    for encoder in encoders:
        method = program.method(encoder.method)
        expected = [method.values[index] for index in method.inputs]
        offered = values[len(arrays) : len(arrays) + encoder.takes]
        if len(offered) < encoder.takes:
            continue
        wrong = [check_value(one, want) for one, want in zip(offered, expected, strict=True)]
        first = next((one for one in wrong if one is not None), None)
        if first is not None:
            problem = problem or f"{encoder.method}: {first.text}"
            continue
        indices = tuple(range(len(arrays), len(arrays) + encoder.takes))
        arrays += [as_program_input(one, want) for one, want in zip(offered, expected, strict=True)]
        rows = 0 if encoder is layout.source else encoder.rows
        if rows is None:
            raise UsageError(
                f"the number of embeddings from {encoder.method} varies, so the prompt "
                "cannot be planned",
                hint="export the encoder with a fixed size of images or sound",
            )
        parts.append(Encoded(encoder, indices, rows))
    if layout.source is not None and not values:
        method = program.method(layout.source.method)
        takes = ", ".join(str(method.values[index]) for index in method.inputs)
        raise MismatchError(
            f"{layout.source.method} needs its input, {takes}, and none is given",
            hint="give the input: inputs= (--inputs); or a seed, to draw numbers (seed=, -X seed)",
        )
    if len(arrays) < len(values) or (layout.source is not None and not parts):
        names = ", ".join(encoder.method for encoder in encoders) or "none"
        raise MismatchError(
            problem
            or f"{len(values)} arrays were given, and {len(arrays)} are taken by encoders "
            f"(the program has: {names})",
            hint="give the arrays of the encoders, in their order: inputs= (--inputs)",
        )
    return Given(tuple(arrays), tuple(parts))


def arranged(ids: Sequence[int], parts: Sequence[Encoded]) -> list[Sequence[int] | Encoded]:
    """Return the parts of a prompt in order: each -1 among the ids is the place of the next of
    `parts`; without any -1 the parts come first.

    Raises `MismatchError` if there are more or fewer parts than places.
    """
    places = [index for index, one in enumerate(ids) if one == PLACE]
    if not places:
        return [*parts, *([ids] if ids else [])]
    if len(places) != len(parts):
        raise MismatchError(
            f"the tokens have places for {len(places)} images or sounds (-1), but "
            f"{len(parts)} are given",
            hint="give one array for each place: inputs= (--inputs)",
        )
    found: list[Sequence[int] | Encoded] = []
    begin = 0
    for place, part in zip(places, parts, strict=True):
        found += [*([ids[begin:place]] if place > begin else []), part]
        begin = place + 1
    return [*found, *([ids[begin:]] if begin < len(ids) else [])]
