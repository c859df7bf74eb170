"""Damages real ETRecords in many ways and reads all of them, in a process of its own.

``python -m tests.attacks.mutated_etrecords SEED COUNT FILE...`` prints a JSON object.

A byte changed in a zip file is mostly found by its CRC. So most cases change what is inside: a
piece of JSON, an opcode of a pickle, the members; and pack it again so that the zip is in order.
"""

from __future__ import annotations

import io
import json
import random
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from etscope.analysis.info.etrecord_info import slim_etrecord
from etscope.errors import EtscopeError
from etscope.formats.etrecord.reader import SIBLINGS, RecordFile, read_etrecord
from etscope.formats.torch_files.program_safety import check_program
from etscope.model.exported_graph import graph_from_record
from etscope.model.graph import Graph, source_lines
from tests.attacks.mutations import attack
from tests.support.etrecord_files import members_of, zip_bytes

Members = dict[str, bytes]
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 7, 2**31, 2**63, 10**30, 1.5, float("nan")),
    *("", "x", "7", "as_tensor", "torch.ops.aten.add.Tensor", "é\0\n", "(" * 500),
    *([], {}, [[]], {"as_int": 3}, {"as_none": []}, {"a": None, "b": None}),
)


def mutated(rng: random.Random, records: Sequence[bytes]) -> bytes:
    """One of the records after one or a few changes."""
    data = rng.choice(records)
    if rng.random() < 0.25:
        return _damaged(rng, data)
    members = members_of(data)
    for _ in range(rng.choice((1, 1, 1, 3))):
        rng.choice(_MUTATIONS)(rng, members)
    return zip_bytes(members)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Changed bytes, often in the zip's own structures: they stand at the end."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 16))):
        if not changed:
            break
        first = max(0, len(changed) - 1500) if rng.random() < 0.7 else 0
        place = rng.randrange(first, len(changed))
        action = rng.randrange(4)
        if action == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif action == 1:
            changed[place : place + 4] = rng.choice((b"\0" * 4, b"\xff" * 4, b"PK\1\2"))
        elif action == 2:
            del changed[place : place + rng.choice((1, 4, 100))]
        else:
            del changed[place:]
    return bytes(changed)


# -- members


def _drop(rng: random.Random, members: Members) -> None:
    if members:
        del members[rng.choice(list(members))]


def _rename(rng: random.Random, members: Members) -> None:
    if members:
        old = rng.choice(list(members))
        new = rng.choice((*members, old + "_constants", "exported_program", "program_buffer", "a"))
        members[new] = members.pop(old)


def _exchange(rng: random.Random, members: Members) -> None:
    if members:
        one, other = rng.choice(list(members)), rng.choice(list(members))
        members[one], members[other] = members[other], members[one]


def _bytes_of(rng: random.Random, members: Members) -> None:
    """Some bytes of a member, with the right CRC afterwards."""
    filled = [name for name, data in members.items() if data]
    if not filled:
        return
    name = rng.choice(filled)
    data = bytearray(members[name])
    for _ in range(rng.choice((1, 1, 4))):
        place = rng.randrange(len(data))
        data[place] = rng.choice((0, 0xFF, data[place] ^ 1, rng.randrange(256), ord('"')))
    members[name] = bytes(data if rng.random() < 0.9 else data[: rng.randrange(len(data))])


# -- JSON


def _json(rng: random.Random, members: Members) -> None:
    """A value somewhere in the JSON of a member."""
    texts = [name for name, data in members.items() if data[:1] in (b"{", b"[")]
    if texts:
        name = rng.choice(texts)
        with suppress(ValueError):
            content = json.loads(members[name])
            for _ in range(rng.choice((1, 1, 2, 5))):
                content = _changed(rng, content)
            members[name] = json.dumps(content).encode()


def _nest(rng: random.Random, members: Members) -> None:
    """A value deeper within lists than Python's stack is deep."""
    texts = [name for name, data in members.items() if data[:1] == b"{"]
    if texts:
        name = rng.choice(texts)
        depth = rng.choice((100, 2000, 100_000))
        members[name] = members[name].replace(b"[]", b"[" * depth + b"]" * depth, 1)


def _changed(rng: random.Random, content: Any) -> Any:
    """The content with one value in it replaced, left out, doubled or put elsewhere."""
    holder, key = content, None
    for _ in range(rng.randrange(1, 14)):
        value = holder if key is None else holder[key]
        if isinstance(value, str) and value[:1] in "{[" and len(value) > 2:
            with suppress(ValueError):  # JSON within JSON: delegates and origins
                holder[key] = json.dumps(_changed(rng, json.loads(value)))
            return content
        if not isinstance(value, (dict, list)) or not value:
            break
        holder = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if key is None:
        return rng.choice(_VALUES)
    _replace(rng, holder, key)
    return content


def _replace(rng: random.Random, holder: Any, key: Any) -> None:
    action = rng.randrange(5)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), holder[key])
    elif action == 2 and isinstance(holder, dict):
        holder[rng.choice((*holder, "as_graph", "name"))] = holder.pop(key)
    elif action == 3:
        for _ in range(rng.choice((1, 1, 1, 40))):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"as_graph": holder[key]}
    else:
        holder[key] = rng.choice(_VALUES)


# -- pickles


def _pickle(rng: random.Random, members: Members) -> None:
    """Bytes of the pickle, or the sizes of storages, of a torch.save file."""
    files = [name for name, data in members.items() if data[:2] in (b"PK", b"\x80\x04")]
    if not files:
        return
    name = rng.choice(files)
    if members[name][:2] != b"PK":
        members[name] = _changed_pickle(rng, members[name])
        return
    inner = members_of(members[name])
    pickle = next((member for member in inner if member.endswith("data.pkl")), None)
    if pickle is not None and rng.random() < 0.8:
        inner[pickle] = _changed_pickle(rng, inner[pickle])
    else:
        rng.choice((_drop, _rename, _exchange, _bytes_of))(rng, inner)
    members[name] = zip_bytes(inner)


def _changed_pickle(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(changed))
        changed[place] = rng.choice((*b"(.]}Rtuseb)0h\x85\x86\x94cQKJX", rng.randrange(256)))
    return bytes(changed)


_MUTATIONS: tuple[Callable[[random.Random, Members], None], ...] = (
    *(_json,) * 6,
    *(_pickle,) * 3,
    _bytes_of,
    _drop,
    _rename,
    _exchange,
    _nest,
)


# -- reading


def touch(data: bytes) -> int:
    """Read all that a record holds; errors of one part do not stop the others.

    Gives the number of parts that were refused. An error on opening is raised.
    """
    record = read_etrecord(data)
    return sum(map(_is_refused, (*_parts(record), lambda: slim_etrecord(data, io.BytesIO()))))


def _is_refused(part: Callable[[], Any]) -> bool:
    try:
        part()
    except EtscopeError as error:
        if isinstance(error.__cause__, MemoryError):  # a limit of the reader's own is missing
            raise AssertionError(f"MemoryError behind {error}") from error
        return True
    return False


def _parts(record: RecordFile) -> list[Callable[[], Any]]:
    parts: list[Callable[[], Any]] = [
        lambda: record.debug_handle_map,
        lambda: record.handle_lists,
        lambda: record.delegate_map,
        lambda: record.instruction_id_to_num_outs_map,
        lambda: record.export_graph_ids,
        lambda: record.fingerprints,
        lambda: record.edge_methods,
        record.program_buffer,
        lambda: _touch_tensors(record.reference_outputs()),
        lambda: _touch_tensors(record.representative_inputs()),
    ]
    with suppress(EtscopeError):
        for name in record.graph_names:
            parts += _parts_of_graph(record, name)
    return parts


def _parts_of_graph(record: RecordFile, name: str) -> list[Callable[[], Any]]:
    def check() -> None:
        siblings = [record.sibling(name, suffix) for suffix in SIBLINGS]
        check_program(record.program_text(name), siblings, strict=True)

    return [
        check,
        lambda: _touch_graph(graph_from_record(record, name)),
        lambda: _touch_tensors(record.state_dict(name)),
        lambda: _touch_tensors(record.constants(name)),
    ]


def _touch_graph(graph: Graph) -> None:
    for node in graph.walk():
        assert isinstance(node.name, str) and isinstance(node.op, str)
        assert all(isinstance(used, str) for used in node.inputs)
        assert node.debug_handle is None or isinstance(node.debug_handle, int)
        hash((node.target, node.arguments, node.outputs, node.modules))
        source_lines(node.stack_trace)
        with suppress(EtscopeError):
            todo = list(node.origins)
            while todo:
                origin = todo.pop()
                hash((origin.name, origin.target, origin.graph_id))
                todo += origin.origins
    assert graph.users.keys() <= graph.by_name.keys()


def _touch_tensors(value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.astype(np.complex128 if value.dtype.kind == "c" else np.float64).sum()
    elif isinstance(value, dict):
        for content in value.values():
            _touch_tensors(content)
    elif isinstance(value, (list, tuple)):
        for content in value:
            _touch_tensors(content)


def main(seed: int, count: int, files: Sequence[str]) -> None:
    """Print the outcomes of `count` cases, and how much the memory has grown."""
    records = [Path(file).read_bytes() for file in files]
    for record in records:
        assert touch(record) == 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = attack(
        seed,
        count,
        lambda rng: mutated(rng, records),
        lambda data: "in part" if touch(data) else None,
    )
    assert outcomes["in part"] > count / 20, outcomes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    json.dump({"outcomes": outcomes, "peak_mb": peak / 1024}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
