"""Shrink an ETRecord to what attribution needs: a record of 900 MB becomes one of a few MB.

Kept are the graphs with stack traces, module names, debug handles and origins, the maps, the
fingerprints, and the reference outputs and representative inputs. Dropped are weights, example
inputs, the blobs of delegates and the program. ExecuTorch opens the result too; it cannot run it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from etscope.errors import UsageError
from etscope.formats.bytes.files import BytesLike, PathLike
from etscope.formats.bytes.zip_archive import NewMember, write_archive
from etscope.formats.etrecord.reader import (
    PROGRAM_BUFFER,
    SIBLINGS,
    SLIMMED,
    RecordFile,
    read_etrecord,
    slimmed_to_json,
)
from etscope.formats.exported_program.exported_json import cut_payloads
from etscope.model.table import Column, Kind, Table


@dataclass(frozen=True, slots=True)
class SlimMember:
    """A member of the record: its bytes in the old file and, unpacked, in the new one."""

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class SlimResult:
    """The sizes of the files in bytes, and of each member. `after` is 0 for a stream."""

    before: int
    after: int
    members: tuple[SlimMember, ...]

    def table(self) -> Table:
        """One row for each member that had weights, the largest first."""
        shrunk = sorted(
            (member for member in self.members if member.after < member.before),
            key=lambda member: member.after - member.before,
        )
        return Table.of(
            {
                Column("member"): [member.name for member in shrunk],
                Column("before", Kind.BYTES): [member.before for member in shrunk],
                Column("after", Kind.BYTES): [member.after for member in shrunk],
            },
            title="dropped from the record",
        )


def slim_etrecord(
    source: PathLike | BytesLike | IO[bytes], destination: PathLike | IO[bytes]
) -> SlimResult:
    """Write the record without weights to `destination`, and return what was dropped.

    The two may be the same path: the new file takes the old one's place when it is complete. One
    member is in memory at a time.

    Raises `FormatError` if the source is not a record, `UsageError` if the destination is the same
    stream.
    """
    is_path = isinstance(destination, (str, os.PathLike))
    if source is destination and not is_path:
        raise UsageError("the slim record cannot be written into the stream it is read from")
    record = read_etrecord(source)
    members: list[SlimMember] = []
    write_archive(_parts(record, members), destination)
    return SlimResult(
        before=len(record.archive.buffer),
        after=os.path.getsize(destination) if is_path else 0,  # type: ignore[arg-type]  # noqa: PTH202
        members=tuple(members),
    )


def _parts(record: RecordFile, members: list[SlimMember]) -> Iterator[NewMember]:
    graphs = set(record.graph_members.values())
    weights = {
        record.sibling_member(name, suffix) for name in record.graph_names for suffix in SIBLINGS
    }
    cuts = dict(record.cuts)
    for name, member in record.members.items():
        data: bytes | memoryview | None
        if name in (PROGRAM_BUFFER, SLIMMED):
            data = None
        elif name in weights:
            data = b""
        elif name in graphs and name not in cuts:
            data, cuts[name] = cut_payloads(record.archive.read(name))
        else:
            data = record.archive.read(name)
        members.append(SlimMember(name, member.size, 0 if data is None else len(data)))
        if data is not None:
            yield NewMember(name, data, deflate=True)
    yield NewMember(SLIMMED, json.dumps(slimmed_to_json(cuts)).encode(), deflate=True)
