"""Bytes and their owner: the one type of files, planned memory and measured memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FILE, PLAN, ESTIMATE, MEASURED, UNKNOWN = "the file", "the plan", "estimate", "a run", "not known"


@dataclass(frozen=True, slots=True)
class OwnedBytes:
    """Bytes with one owner.

    owner: "activations", "conv1.weight", "planned buffers". size: in bytes, None if unknown.
    known_by: "the file", "the plan", "a run", "estimate" (packed weights take as many bytes as the
    weights themselves) or "not known"; None for a total. planned: of measured bytes, what the
    program's file says; None if it says nothing.
    """

    owner: str
    size: int | None
    known_by: str | None = FILE
    planned: int | None = None


def with_total(
    owners: Sequence[OwnedBytes], name: str
) -> Iterator[tuple[OwnedBytes, float | None]]:
    """Yield each owner with its share of the known bytes, then their total under `name`."""
    total = sum(one.size or 0 for one in owners)
    for one in (*owners, OwnedBytes(name, total, None)):
        yield one, one.size / total if total and one.size is not None else None
