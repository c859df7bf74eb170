"""The tables of decoders: how to read the events and values that each backend's delegate logs.

A delegate logs names, identifiers and numbers, and their meaning depends on the backend. QNN logs
bytes and cycles in the fields for times; Vulkan logs times of the CPU and of the GPU. A decoder
returns the `Meaning` of each event of a call, which all tables and pictures use.

Another package adds a decoder by an entry point of the group `etscope.delegates`, under the
backend's id.

Two backends of ExecuTorch log tensors inside their calls: QNN and Core ML. A backend may log the
graph's numbers in another order of dimensions, as integers, or in another type. Its function in
`VALUE_FORMS` returns the `Form` of each value of a call, or the reason why the value cannot be
compared: etscope does not guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from etscope.backends import coreml, neutron, vulkan, xnnpack
from etscope.backends.arm import delegates as arm
from etscope.backends.common.logged import (
    Form,
    InnerCall,
    LoggedCall,
    Types,
    nested,
    same_shape,
    type_form,
)
from etscope.backends.qnn import delegate as qnn
from etscope.errors import UsageError
from etscope.model.event_table import Block, Clock, EventKey, Meaning, Quantity

Decoder = Callable[[LoggedCall], Sequence[Meaning]]

_TRACER = "Build the runtime with -DEXECUTORCH_ENABLE_EVENT_TRACER=ON to log them."
_NEVER = "This backend never logs any: use its vendor's profiler."


class EventDecoder(NamedTuple):
    """A decoder for the events of a backend.

    decode: a function that returns the meaning of each event of a call. recognises: a function that
    returns True if events come from this backend, for dumps without a record. silence: a sentence
    on how to get events if a call has none.
    """

    decode: Decoder
    recognises: Callable[[LoggedCall], bool] = lambda call: False
    silence: str = _NEVER


DELEGATES: Mapping[str, EventDecoder] = {
    "XnnpackBackend": EventDecoder(
        xnnpack.decode,
        silence=_TRACER,
    ),
    "QnnBackend": EventDecoder(
        qnn.decode,
        qnn.recognises,
        "Compile with profile_level=2 (kProfileDetailed), or run with --profile_level 2.",
    ),
    "VulkanBackend": EventDecoder(
        vulkan.decode,
        vulkan.recognises,
        _TRACER,
    ),
    "CoreMLBackend": EventDecoder(
        coreml.decode,
        coreml.recognises,
        silence="Build the delegate with -DEXECUTORCH_BUILD_DEVTOOLS=ON, and run on macOS 14.4 or "
        "iOS 17.4, or later.",
    ),
    "VgfBackend": EventDecoder(arm.decode_vgf, arm.is_vgf, _TRACER),
    "NeutronBackend": EventDecoder(
        neutron.decode,
        neutron.recognises,
        silence="Compile the model with use_profiling=True.",
    ),
    "EthosUBackend": EventDecoder(arm.decode_ethos_u, arm.is_ethos_u, _TRACER),
    # These do not log events into a dump.
    "OpenvinoBackend": EventDecoder(nested),
    "MPSBackend": EventDecoder(nested),
    "NeuropilotBackend": EventDecoder(nested),
    "CudaBackend": EventDecoder(nested),
    "MetalBackend": EventDecoder(nested),
    "MLXBackend": EventDecoder(nested),
    "EnnBackend": EventDecoder(nested),
    "CoreAIBackend": EventDecoder(nested, silence="ExecuTorch 1.5 does not have a runtime for it."),
    "TensorRTBackend": EventDecoder(nested),
    "NativeBackend": EventDecoder(nested, silence="ExecuTorch 1.5 does not have a runtime for it."),
}
_OTHERS = EventDecoder(
    nested, silence="etscope does not know this backend; a package can add a decoder."
)


def decoder_of(name: str) -> EventDecoder:
    """Return the decoder of a backend id: etscope's, a package's, or the common one."""
    return DELEGATES.get(name) or _from_packages().get(name, _OTHERS)


def decoded(backend: str | None, call: LoggedCall) -> Sequence[Meaning]:
    """Return the meaning of each event of a call. backend: its id; None if unknown.

    Raises `UsageError` if the decoder of another package skips events.
    """
    if backend is None:
        found = next((one for one in DELEGATES.values() if one.recognises(call)), _OTHERS)
    else:
        found = decoder_of(backend)
    meaning = found.decode(call)
    if len(meaning) != len(call.names):
        raise UsageError(
            f"the decoder of {backend} returns {len(meaning)} meanings for "
            f"{len(call.names)} events",
            hint="fix the package with the entry point etscope.delegates",
        )
    return meaning


def meanings(block: Block, backend: Callable[[EventKey], str | None]) -> dict[int, Meaning]:
    """Decode all events that delegates logged in the runs of a block.

    Return the meaning of each event by its index in the block's keys; `parent` is such an index,
    too. backend: returns the id of the backend that logged an event, if known. The events of one
    delegate call are decoded together.
    """
    calls: dict[tuple[int | None, int | None], list[int]] = {}
    for index in filter(block.is_logged_in_delegate, block.profiled):
        calls.setdefault((block.keys[index].instruction, block.parents[index]), []).append(index)
    found: dict[int, Meaning] = {}
    for (_, around), members in calls.items():
        keys = [block.keys[index] for index in members]
        is_call = around is not None and block.roles[around] == "delegate"
        call = LoggedCall(
            names=[key.name for key in keys],
            identifiers=["" if key.delegate_id is None else key.delegate_id for key in keys],
            start=block.starts[members],
            ticks=block.ticks[members],
            call_start=block.starts[around] if is_call else None,
            call_ticks=block.ticks[around] if is_call else None,
            metadata=[block.metadata(index) for index in members],
        )
        for index, meaning in zip(members, decoded(backend(keys[0]), call), strict=True):
            found[index] = meaning
            if meaning.parent is not None:
                found[index] = replace(meaning, parent=members[meaning.parent])
            if index in block.backwards:
                runs = int(block.backwards[index].sum())
                problem = {"problem": f"ends before it starts in {runs:,} runs"}
                found[index] = replace(found[index], columns={**meaning.columns, **problem})
    return found


@cache
def _from_packages() -> Mapping[str, EventDecoder]:
    from importlib.metadata import entry_points  # slow to import; only for installed plugins

    return {entry.name: entry.load() for entry in entry_points(group="etscope.delegates")}


# -- values

VALUE_FORMS: Mapping[str, Callable[[InnerCall], Sequence[Form | str]]] = {
    "QnnBackend": qnn.forms,
    "CoreMLBackend": coreml.forms,
}
# Backends that keep values of a quantized model as integers, even if the graph has floats there.
IN_CODES = frozenset({"QnnBackend"})


def value_forms(backend: str | None, call: InnerCall) -> Sequence[Form | str]:
    """Return for each value of a call the steps that convert it to the reference's form, or the
    reason why it cannot be compared. backend: the backend's id; None if unknown."""
    forms = VALUE_FORMS.get(backend or "")
    if forms is not None:
        return forms(call)
    found: list[Form | str] = []  # of an unknown backend: only values in the graph's shapes
    for value in call.values:
        types = type_form(value)
        if isinstance(types, Types) and not same_shape(value.shape, value.spec.shape):
            found.append(value.other_shape)
        else:
            found.append(types.form() if isinstance(types, Types) else types)
    return found


__all__ = [
    "DELEGATES",
    "Clock",
    "Decoder",
    "EventDecoder",
    "LoggedCall",
    "Meaning",
    "Quantity",
    "decoded",
    "decoder_of",
    "meanings",
]
