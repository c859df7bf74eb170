"""Write ETDumps from Python, as `ETDumpGen` does for the C++ runtime.

    writer = ETDumpWriter()
    writer.create_event_block("Execute")
    token = writer.start_profiling("native_call_add.out", chain_index=0, instruction_id=3)
    ...
    writer.end_profiling(token)
    writer.save("model.etdp")

This package and upstream's Inspector read the files. (Upstream's cannot open any dump with
allocation events, not even its own.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from etscope.errors import UsageError
from etscope.formats.bytes.files import PathLike, atomic_write
from etscope.formats.etdump.debug_values import DebugValue, TensorRef
from etscope.formats.etdump.encode import EVENT, Content, encode, write_etdump
from etscope.formats.etdump.reader import EventKind
from etscope.formats.program.scalar_type import ScalarType, as_numpy, scalar_type_of

__all__ = ["ETDumpWriter", "ProfilingToken", "write_etdump"]


def is_tensor(value: object) -> bool:
    """Return True for values of `tensor_storage`: an ndarray, a torch tensor, anything with
    `__array__` that is not a numpy scalar.
    """
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def tensor_storage(value: Any) -> tuple[ScalarType, npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Return a tensor's element type, the tensor as an array, and its bytes in memory order.

    A dense tensor keeps its strides, also in another order of dimensions (channels-last, a
    transpose). Any other tensor becomes contiguous.
    """
    array = as_numpy(value)
    kind = scalar_type_of(array.dtype)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    # Outermost in memory first; dimensions of equal stride stay in order.
    order = sorted(range(array.ndim), key=lambda dim: -abs(array.strides[dim]))
    stored = array.transpose(order)
    if not stored.flags.c_contiguous:
        array = stored = np.ascontiguousarray(array).reshape(array.shape)
    return kind, array, stored.reshape(-1).view(np.uint8)


_ALIGNMENT = 64  # of tensors in the debug buffer, as ExecuTorch's BufferDataSink has it
_DEFAULTS = (0, -1, -1, -1, -1, -1, 0, 0, -1, 0, 0, -1)  # in the order of EVENT


@dataclass(frozen=True, slots=True)
class ProfilingToken:
    """A started span; `end_profiling` writes it."""

    name: str | None
    delegate_id: int | str | None
    chain_index: int
    instruction_id: int
    start: int


@dataclass(slots=True)
class _Block:
    name: int
    bundled_input_index: int
    events: list[tuple[int, ...]] = field(default_factory=list)
    allocators: tuple[str, ...] = ()
    # [repeats, profile events], each: times of the repetitions of the block
    starts: npt.NDArray[np.uint64] | None = None
    ends: npt.NDArray[np.uint64] | None = None


class ETDumpWriter:
    """Collects events in memory; `finish` encodes them as a file.

    `clock` returns the time for `start_...` and `end_...` in integer ticks. Events belong to the
    last block, and to the instruction passed with them or last set by `set_chain_debug_handle`.
    Before that they have chain -1 and instruction 0, which mark the runtime's own events.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._blocks: list[_Block] = []
        self._strings: dict[str, int] = {}
        self._metadata: dict[bytes, int] = {}
        self._values: list[tuple[DebugValue, bool]] = []
        self._allocators: list[str] = []
        self._debug = bytearray()
        self._bundled_input_index = -1
        self._chain_index = -1
        self._instruction_id = 0

    def create_event_block(self, name: str) -> None:
        """Begin the next run."""
        self._blocks.append(_Block(self._string(name), self._bundled_input_index))
        self._blocks[-1].allocators = tuple(self._allocators)

    def set_bundled_input_index(self, index: int) -> None:
        """Set the bundled input of the following blocks; -1: none."""
        self._bundled_input_index = _int32("bundled input index", index)

    def set_chain_debug_handle(self, chain_index: int, instruction_id: int) -> None:
        """Set the instruction of events without one."""
        self._chain_index = _int32("chain index", chain_index)
        self._instruction_id = _int32("instruction id", instruction_id)

    def start_profiling(
        self, name: str, chain_index: int | None = None, instruction_id: int | None = None
    ) -> ProfilingToken:
        """Begin a span now."""
        return self._begin(name, None, chain_index, instruction_id)

    def end_profiling(self, token: ProfilingToken) -> None:
        """End a span now. The file has events in the order of their ends."""
        self._profile(token, self._clock(), None)

    def log_profiling(
        self,
        name: str,
        start: int,
        end: int,
        *,
        chain_index: int | None = None,
        instruction_id: int | None = None,
    ) -> None:
        """Log a span with known times, in ticks."""
        self._profile(self._begin(name, None, chain_index, instruction_id, start), end, None)

    def start_profiling_delegate(
        self,
        delegate_id: int | str,
        *,
        chain_index: int | None = None,
        instruction_id: int | None = None,
    ) -> ProfilingToken:
        """Begin a span inside a delegate now, for the op to which the delegate gives that id."""
        return self._begin(None, delegate_id, chain_index, instruction_id)

    def end_profiling_delegate(self, token: ProfilingToken, metadata: bytes | None = None) -> None:
        """End a span inside a delegate now."""
        self._profile(token, self._clock(), metadata)

    def log_profiling_delegate(
        self,
        delegate_id: int | str,
        start: int,
        end: int,
        metadata: bytes | None = None,
        *,
        chain_index: int | None = None,
        instruction_id: int | None = None,
    ) -> None:
        """Log a span inside a delegate with known times, in the delegate's own ticks."""
        token = self._begin(None, delegate_id, chain_index, instruction_id, start)
        self._profile(token, end, metadata)

    def log_evalue(
        self,
        value: Any,
        *,
        output: bool = False,
        chain_index: int | None = None,
        instruction_id: int | None = None,
    ) -> None:
        """Log a result of the current instruction, or an output of the program.

        value: an int, bool, float, None, a tensor (a numpy array, a torch tensor, anything with
        `__array__`) or a list of tensors. The bytes of tensors are copied to the debug buffer.
        """
        self._debug_event(value, output, None, chain_index, instruction_id)

    def log_intermediate_output_delegate(
        self,
        delegate_id: int | str,
        value: Any,
        *,
        chain_index: int | None = None,
        instruction_id: int | None = None,
    ) -> None:
        """Log a result inside a delegate, of the op to which the delegate gives that id."""
        self._debug_event(value, False, delegate_id, chain_index, instruction_id)

    def track_allocator(self, name: str) -> int:
        """Announce an allocator to this and the following blocks; returns its id, from 1 on."""
        self._allocators.append(name)
        self._block.allocators = tuple(self._allocators)
        return len(self._allocators)

    def track_allocation(self, allocator_id: int, size: int) -> None:
        """Log that `size` bytes were taken from an allocator."""
        if not 1 <= allocator_id <= len(self._allocators):
            raise UsageError(
                f"no allocator has the id {allocator_id}", hint="track_allocator returns the ids"
            )
        self._event(EventKind.ALLOCATION, allocator=allocator_id, size=_uint64("size", size))

    def repeat_block(self, starts: npt.ArrayLike, ends: npt.ArrayLike) -> None:
        """Repeat the last block once for each row of times: [repeats, profile events].

        For converters and simulations of many runs: no Python code runs per event.
        """
        source = self._block
        times = [np.ascontiguousarray(array, dtype=np.uint64) for array in (starts, ends)]
        profiled = sum(event[0] == EventKind.PROFILE for event in source.events)
        if any(array.shape != (len(times[0]), profiled) for array in times):
            raise UsageError(f"starts and ends must both be of shape (repeats, {profiled})")
        self._blocks.append(replace(source, starts=times[0], ends=times[1]))

    @property
    def debug_data(self) -> bytes:
        """The bytes of the debug buffer so far."""
        return bytes(self._debug)

    def finish(self) -> bytes:
        """Return the file, with its size in front. More may be logged afterwards."""
        events = []
        for block in self._blocks:
            rows = np.array(block.events, EVENT)
            if block.starts is not None and block.ends is not None:
                timed = np.tile(rows["kind"] == EventKind.PROFILE, len(block.starts))
                rows = np.tile(rows, len(block.starts))
                rows["start"][timed] = block.starts.reshape(-1)
                rows["end"][timed] = block.ends.reshape(-1)
            events.append(rows)
        repeats = [1 if block.starts is None else len(block.starts) for block in self._blocks]

        def per_run(values: Sequence[int]) -> npt.NDArray[np.int64]:
            return np.repeat(np.array(values, np.int64), repeats)

        return encode(
            Content(
                strings=tuple(self._strings),
                metadata=tuple(self._metadata),
                values=self._values,
                run_name=per_run([block.name for block in self._blocks]),
                run_bundled_input_index=per_run([b.bundled_input_index for b in self._blocks]),
                run_allocators=tuple(
                    block.allocators
                    for block, times in zip(self._blocks, repeats, strict=True)
                    for _ in range(times)
                ),
                run_events=per_run([len(block.events) for block in self._blocks]),
                events=np.concatenate([np.zeros(0, EVENT), *events]),
            )
        )

    def save(self, path: PathLike, debug_buffer_path: PathLike | None = None) -> None:
        """Write the file, and the debug buffer if tensors were logged. Files appear complete or
        not at all.

        Raises `UsageError` if there are tensors and no path for them.
        """
        if self._debug and debug_buffer_path is None:
            raise UsageError("tensors were logged: save needs a debug_buffer_path for their bytes")
        with atomic_write(path) as file:
            file.write(self.finish())
            if debug_buffer_path is not None:
                with atomic_write(debug_buffer_path) as debug_file:
                    debug_file.write(self._debug)

    @property
    def _block(self) -> _Block:
        if not self._blocks or self._blocks[-1].starts is not None:
            raise UsageError("cannot log without a block", hint="call create_event_block first")
        return self._blocks[-1]

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _begin(
        self,
        name: str | None,
        delegate_id: int | str | None,
        chain_index: int | None,
        instruction_id: int | None,
        start: int | None = None,
    ) -> ProfilingToken:
        return ProfilingToken(
            name,
            delegate_id,
            self._chain_index if chain_index is None else chain_index,
            self._instruction_id if instruction_id is None else instruction_id,
            self._clock() if start is None else start,
        )

    def _profile(self, token: ProfilingToken, end: int, metadata: bytes | None) -> None:
        metadata_id = -1
        if metadata is not None:
            metadata_id = self._metadata.setdefault(bytes(metadata), len(self._metadata))
        self._event(
            EventKind.PROFILE,
            name=-1 if token.name is None else self._string(token.name),
            chain=_int32("chain index", token.chain_index),
            instruction=_int32("instruction id", token.instruction_id),
            start=_uint64("start", token.start),
            end=_uint64("end", end),
            metadata=metadata_id,
            **self._delegate(token.delegate_id),
        )

    def _debug_event(
        self,
        value: Any,
        output: bool,
        delegate_id: int | str | None,
        chain_index: int | None,
        instruction_id: int | None,
    ) -> None:
        token = self._begin(None, delegate_id, chain_index, instruction_id, 0)
        held = self._debug_value(value)
        self._event(
            EventKind.DEBUG,
            chain=_int32("chain index", token.chain_index),
            instruction=_int32("instruction id", token.instruction_id),
            value=len(self._values),
            **self._delegate(delegate_id),
        )
        self._values.append((held, output))

    def _delegate(self, delegate_id: int | str | None) -> dict[str, int]:
        if delegate_id is None:
            return {}
        if isinstance(delegate_id, str):
            return {"delegate_str": self._string(delegate_id)}
        if delegate_id == -1:
            raise UsageError("-1 is not a delegate id: it means 'no id' in the format")
        return {"delegate_int": _int32("delegate id", delegate_id)}

    def _debug_value(self, value: Any) -> DebugValue:
        if is_tensor(value):
            return self._tensor(value)
        if isinstance(value, (list, tuple)) and all(map(is_tensor, value)):
            return tuple(map(self._tensor, value))
        scalar = value.item() if isinstance(value, np.generic) else value
        if scalar is None or isinstance(scalar, (bool, float)):
            return scalar
        if isinstance(scalar, int) and -(1 << 63) <= scalar < 1 << 63:
            return scalar
        raise UsageError(f"an ETDump cannot hold a {type(value).__name__} such as {value!r:.80}")

    def _tensor(self, value: Any) -> TensorRef:
        kind, array, stored = tensor_storage(value)
        strides = tuple(step // array.itemsize for step in array.strides)
        if array.size == 0:
            return TensorRef(kind, array.shape, strides, -1)
        self._debug += bytes(-len(self._debug) % _ALIGNMENT)
        offset = len(self._debug)
        self._debug += stored.data
        return TensorRef(kind, array.shape, strides, offset)

    def _event(self, kind: EventKind, **fields: int) -> None:
        values = dict(zip(EVENT.names or (), _DEFAULTS, strict=True))
        self._block.events.append(tuple({**values, "kind": kind, **fields}.values()))


def _int32(what: str, value: int) -> int:
    if not -(1 << 31) <= value < 1 << 31:
        raise UsageError(f"the {what} {value} does not fit in a signed 32-bit integer")
    return value


def _uint64(what: str, value: int) -> int:
    if not 0 <= value < 1 << 64:
        raise UsageError(f"the {what} {value} does not fit in an unsigned 64-bit integer")
    return value
