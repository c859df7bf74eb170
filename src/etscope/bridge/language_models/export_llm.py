"""ExecuTorch's own export of language models, `executorch.extension.llm.export.export_llm`, with a
record of etscope's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etscope.bridge.failures import innermost
from etscope.bridge.lowering.export import Parts, flat_inputs, program_method, recording
from etscope.bridge.lowering.partition import keeping_partition
from etscope.errors import ExportFailure, UsageError
from etscope.formats.program.input_validation import as_exported
from etscope.optional import require

_WANTED_BY = "export_llm"


def export_llm(config_file: Path, new_record: Callable[[], Any]) -> Parts:
    """Export the model that a config of `export_llm` describes, to the backend that it names.

    Paths in the config are relative to the current folder, as upstream's are; its names of output
    files are not used. new_record: makes an empty `ETRecord`.

    Raises `MissingDependencyError`, `UsageError` for a config that is none, and `ExportFailure`.
    """
    require("omegaconf", wanted_by=_WANTED_BY)
    for module in ("examples.models.llama.export_llama_lib", "extension.llm.export.export_llm"):
        require(f"executorch.{module}", wanted_by=_WANTED_BY)
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config.llm_config import LlmConfig
    from omegaconf import OmegaConf

    try:
        merged = OmegaConf.merge(OmegaConf.structured(LlmConfig), OmegaConf.load(config_file))
        config: Any = OmegaConf.to_object(merged)
    except Exception as error:
        raise UsageError(
            f"{config_file} is not a config of export_llm: {innermost(error)}",
            hint="its fields are those of executorch.extension.llm.export.config.llm_config",
        ) from error
    records: list[Any] = []

    def recorded() -> Any:
        records.append(new_record())
        return records[-1]

    with tempfile.TemporaryDirectory() as folder:
        config.debug.generate_etrecord = True
        config.export.output_dir, config.export.output_name = folder, "model"
        try:
            with recording(recorded), keeping_partition() as kept:
                export_llama(config)
        except Exception as error:
            raise ExportFailure(f"export_llm fails: {innermost(error)}") from error
    # Some steps of export_llm begin another record: the one that ends with the program counts.
    whole = [one for one in records if one.program_buffer() is not None]
    if not whole:
        raise ExportFailure(
            f"export_llm keeps no record for the backend of {config_file}",
            hint="it does for XNNPACK, Vulkan and Core ML",
        )
    return _with_examples(whole[-1], kept)


def _with_examples(record: Any, kept: Any) -> Parts:
    """Add to a record what `export_llm` leaves out: the example inputs, and PyTorch's outputs."""
    record.partition = kept.of(record.edge_programs)
    programs = {"forward": record.exported_program, **(record.exported_programs or {})}
    methods = {
        name: program_method(name, program, None)
        for name, program in programs.items()
        if program is not None
    }
    inputs = {name: flat_inputs(one.program, one.inputs) for name, one in methods.items()}
    outputs = {name: one.outputs for name, one in methods.items()}
    if "forward" in inputs:
        record.update_representative_inputs(list(inputs["forward"]))
    record.update_reference_outputs({name: [list(values)] for name, values in outputs.items()})
    taken = {name: as_exported(values) for name, values in inputs.items()}
    return Parts(None, record, taken, outputs)
