"""Identify the format of a file by its first bytes, and of a zip file by its members' names."""

from __future__ import annotations

import codecs
import re
from collections.abc import Collection

from etscope.errors import FormatError, VersionError, reading
from etscope.formats.bytes.files import BytesLike, PathLike, open_source

__all__ = ["BPTE", "ETRECORD", "PTE", "identify"]

ETDUMP = "etdump"
ETRECORD = "etrecord"
PTE = "pte"
BPTE = "bpte"
PTD = "ptd"
PTN = "ptn"  # of `is_ptn`: the package is a plain zip

# Names of the five formats in messages.
_NAMES = {
    ETDUMP: "an ETDump (.etdp)",
    ETRECORD: "an ETRecord",
    PTE: "an ExecuTorch program (.pte)",
    BPTE: "a bundled program (.bpte)",
    PTD: "external tensors of a program (.ptd)",
}

_LOG = 1 << 20  # bytes of a log that are searched
BOARD_FILE = re.compile(
    rb"\|\s*base64 -d\s*>"
)  # of the command that writes a file, in a board's log
_PRINTED_REPORT = re.compile(rb"Prompt Tokens: \d+\s+Generated Tokens: \d")
_ZIP = b"PK\x03\x04"
_ETRECORD_MEMBER = "ETRECORD_V0"
_PTN_MEMBER = "program.ptg"

# FlatBuffers files: the first two of four characters at byte 4; the other two are the version.
_IDENTIFIERS = {b"ET": PTE, b"BP": BPTE, b"ED": ETDUMP, b"FT": PTD}

# Other files that users give by mistake: offset of the magic bytes, the bytes, name.
_FOREIGN: tuple[tuple[int, bytes, str], ...] = (
    (4, b"XN0", "the data of an XNNPACK delegate"),
    (4, b"VK0", "the data of a Vulkan delegate"),
    (4, b"NPTG", "a graph of ExecuTorch's native backend"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x7fELF", "a program of the operating system (ELF)"),
    (0, b"\x1f\x8b", "gzip-compressed data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"\x93NUMPY", "a NumPy array (.npy)"),
    (0, b"\x89HDF", "an HDF5 file"),
    (8, b'{"', "a safetensors file"),
    (0, b"{", "JSON"),
    (0, b"[", "JSON"),
)


def identify(data_or_path: BytesLike | PathLike) -> str:
    """Return the format of a file: "etdump", "etrecord", "pte", "bpte" or "ptd".

    Checks only the first bytes; the reader checks the rest. Raises `FormatError` for any other file
    (also a directory or an empty file) with a guess of its format, `MissingFileError` for a missing
    file.
    """
    source = open_source(data_or_path, "ExecuTorch file")
    with reading("ExecuTorch file", source.path):
        found = _format_of(source.buffer)
        if found is None:
            raise FormatError(
                f"not a file that etscope reads: {describe(source.buffer)}",
                hint="etscope reads ETDump, ETRecord, .pte, .bpte and .ptd files",
            )
        return found


def is_ptn(path: PathLike) -> bool:
    """Return whether a file is a package of ExecuTorch's native backend (.ptn)."""
    buffer = open_source(path, "native package").buffer
    try:
        return bytes(buffer[:4]) == _ZIP and _PTN_MEMBER in _zip_members(buffer)
    except FormatError:
        return False


def is_app_log(path: PathLike) -> bool:
    """Return whether a file of no known format is the log of an app that ran a language model."""
    return _has_app_log(open_source(path, "app's log").buffer)


def _has_app_log(buffer: memoryview) -> bool:
    head = bytes(buffer[:_LOG])
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell's `> file`
        head = head.decode("utf-16", "replace").encode()
    return b"PyTorchObserver {" in head or _PRINTED_REPORT.search(head) is not None


def has_board_files(buffer: memoryview) -> bool:
    """Return whether a file is a board's log with files in base64."""
    return b"\0" not in bytes(buffer[:64]) and BOARD_FILE.search(buffer) is not None


def describe(buffer: memoryview) -> str:
    """Return a guess of the format, to end a sentence like "not an ETDump: ..."."""
    found = _format_of(buffer)
    if found is not None:
        return f"this is {_NAMES[found]}"
    if bytes(buffer[:4]) == _ZIP:
        try:
            members = _zip_members(buffer)
        except FormatError as error:
            return f"this seems to be a damaged zip file: {error.message}"
        if _PTN_MEMBER in members:
            return "this is a package of ExecuTorch's native backend (.ptn)"
        if any(name.endswith(("data.pkl", "archive_format")) for name in members):
            return "this seems to be an archive of torch.save or torch.export.save (.pt, .pt2)"
        return f"this is a zip file without the member {_ETRECORD_MEMBER}, so it is not an ETRecord"
    for offset, magic, name in _FOREIGN:
        if bytes(buffer[offset : offset + len(magic)]) == magic:
            return f"this seems to be {name}"
    if buffer[0] == 0x80 and len(buffer) > 1 and 2 <= buffer[1] <= 5:
        return "this seems to be a Python pickle, which etscope never loads"
    if _has_app_log(buffer):
        return "this is the log of an app that ran a language model, without the dump of its run"
    if has_board_files(buffer):
        return "this is a board's log with a dump in it; etscope runs import LOG takes it out"
    if not any(buffer[:64]):
        return "it begins with zeros; a debug buffer holds only the tensors of an ETDump"
    return f"its first bytes, {bytes(buffer[:8]).hex(' ')}, do not match a known format"


def check_identifier(buffer: memoryview, wanted: bytes, kind: str, name: str) -> None:
    """Check the identifier of a FlatBuffers file. Its last two characters are the version.

    kind: the kind of file in messages ("bundled program"). name: the same with its article and
    suffix. Raises `VersionError` for another version, `FormatError` for another format.
    """
    found = bytes(buffer[4:8])
    if found == wanted:
        return
    if found[:2] == wanted[:2] and found[2:].isalnum():
        raise VersionError(
            f"this {kind} has schema version {found.decode()}; etscope reads {wanted.decode()}",
            offset=4,
        )
    raise FormatError(f"not {name}: {describe(buffer)}")


def check_ends(size: int, at: int, **ends: int) -> None:
    """Raise `FormatError` if a part of a file ("its tables") ends beyond the `size` of the file, by
    the header at byte `at`.
    """
    for part, end in ends.items():
        if end > size:
            raise FormatError(
                f"its {part} end at byte {end:,}, but the file has {size:,} bytes",
                offset=at,
                hint="the file is cut off; copy or export it again",
            )


def _format_of(buffer: memoryview) -> str | None:
    if bytes(buffer[:4]) == _ZIP:
        try:
            return ETRECORD if _ETRECORD_MEMBER in _zip_members(buffer) else None
        except FormatError:
            return None
    # The runtime writes the size of an ETDump before it.
    for at in (4, 8):
        identifier = bytes(buffer[at : at + 4])
        found = _IDENTIFIERS.get(identifier[:2]) if identifier[2:].isalnum() else None
        if found is not None and (at == 4 or found == ETDUMP) and len(identifier) == 4:
            return found
    return None


def _zip_members(buffer: memoryview) -> Collection[str]:
    """The names in the directory of a zip file."""
    from etscope.formats.bytes.zip_archive import open_archive  # zipfile takes time to import

    return open_archive(buffer, "zip file").members
