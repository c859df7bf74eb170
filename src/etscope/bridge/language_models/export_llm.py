"""ExecuTorch's own export of language models, `executorch.extension.llm.export.export_llm`, with a
record of etscope's."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from etscope.bridge.failures import innermost
from etscope.bridge.lowering.export import Parts, parts_of, program_method, recording
from etscope.bridge.lowering.partition import keeping_partition
from etscope.errors import ExportFailure, UsageError
from etscope.support.optional import require

_WANTED_BY = "export_llm"


class _Lowered(Exception):
    """Ends `export_llm` when its program is made: what follows only writes files."""

    def __init__(self, program: Any) -> None:
        super().__init__("the program is made")
        self.program = program


def export_llm(config_file: Path, new_record: Callable[[], Any]) -> Parts:
    """Export the model that a config of `export_llm` describes, to the backend that it names.

    Paths in the config are relative to the current folder, as upstream's are; its names of output
    files are not used. new_record: makes an empty `ETRecord`.

    Raises `MissingDependencyError`, `UsageError` for an invalid config, or one with a result that a
    program and its record cannot hold, and `ExportFailure`.
    """
    require("omegaconf", wanted_by=_WANTED_BY)
    require("executorch.examples.models.llama.export_llama_lib", wanted_by=_WANTED_BY)
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.builder import LLMEdgeManager

    def keep(manager: Any, _: str) -> None:
        raise _Lowered(manager.export_program)

    config = _read_config(config_file)
    with tempfile.TemporaryDirectory() as folder:
        config.debug.generate_etrecord = True
        config.export.output_dir, config.export.output_name = folder, "model"
        try:
            with (
                recording(new_record),
                keeping_partition() as kept,
                mock.patch.object(LLMEdgeManager, "save_to_pte", keep),
            ):
                export_llama(config)
        except _Lowered as made:
            program = made.program
        except Exception as error:
            raise ExportFailure(f"export_llm fails: {innermost(error)}") from error
        else:
            raise ExportFailure(f"export_llm did not make a program of {config_file}")
    try:
        record = program.get_etrecord()
    except RuntimeError as error:
        raise ExportFailure(
            f"export_llm cannot keep a record for the backend of {config_file}",
            hint="export_llm can keep a record for XNNPACK, Vulkan and Core ML",
        ) from error
    record.partition = kept.of(record.edge_programs)
    methods = {
        name: program_method(name, exported, None)
        for name, exported in record.exported_programs.items()
    }
    return parts_of(program, record, methods)


def _read_config(path: Path) -> Any:
    """Return a config of `export_llm` as its `LlmConfig`."""
    from executorch.extension.llm.export.config.llm_config import LlmConfig
    from omegaconf import OmegaConf

    try:
        merged = OmegaConf.merge(OmegaConf.structured(LlmConfig), OmegaConf.load(path))
        config: Any = OmegaConf.to_object(merged)
    except Exception as error:
        raise UsageError(
            f"{path} is not a config of export_llm: {innermost(error)}",
            hint="executorch.extension.llm.export.config.llm_config has its fields",
        ) from error
    for field in ("export_only", "foundation_weights_file", "lora_weights_file"):
        if getattr(config.export, field):
            raise UsageError(
                f"export.{field} in {path} cannot be kept: the export writes a program with all "
                "its weights, and its record",
                hint="leave the option out, or run executorch.extension.llm.export.export_llm",
            )
    return config
