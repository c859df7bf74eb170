"""Import packages only when needed, with an error that says how to install a missing one."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from etscope.errors import MissingDependencyError

# package -> the extra of etscope that installs it (None: a core dependency)
EXTRAS: dict[str, str | None] = {
    "anywidget": "notebook",
    "coreai_torch": "coreai",
    "coremltools": "coreml",
    "ethosu": "ethos-u",
    "executorch": "torch",
    "tabulate": None,
    "matplotlib": "plot",
    "mcp": "agent",
    "model_converter": "vgf",
    "model_explorer": "model-explorer",
    "nncf": "openvino",
    "openvino": "openvino",
    "pandas": "pandas",
    "perfetto": "perfetto",
    "pyarrow": "parquet",
    "safetensors": "safetensors",
    "prompt_toolkit": "debugger",
    "tensorboard": "tensorboard",
    "omegaconf": "torch",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "torchao": "torch",
    "traitlets": "notebook",
    "transformers": "llm",
    "tosa_serializer": "tosa",
    "werkzeug": "serve",
}


_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def require(module: str, *, wanted_by: str) -> Any:
    """Import `module` ("torch", "pyarrow.parquet") or raise `MissingDependencyError`.

    wanted_by: ends the message "torch is needed by ...".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = EXTRAS.get(package)
        line = "pip install etscope" if extra is None else f"pip install 'etscope[{extra}]'"
        raise MissingDependencyError(
            f"{package} is needed by {wanted_by}, and cannot be imported ({error})", hint=line
        ) from error


def available(module: str) -> ModuleType | None:
    """Return the module, or None if it cannot be imported."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def numpy_without_threads() -> None:
    """Load numpy with one thread for linear algebra, for commands that multiply no matrices.

    OpenBLAS starts its threads when it is loaded, which takes as long as a third of numpy. Changes
    nothing if numpy is loaded already, or if the user chose the number of threads.
    """
    if "numpy" not in sys.modules and _BLAS_THREADS not in os.environ:
        os.environ[_BLAS_THREADS] = "1"
        try:
            importlib.import_module("numpy")
        finally:
            del os.environ[_BLAS_THREADS]  # child processes may multiply matrices


def installed_libraries() -> dict[str, str]:
    """Return environment variables with the paths of shared libraries in installed packages.

    ExecuTorch's backends need them to find the libraries. `OPENVINO_LIB_PATH`: ExecuTorch's
    `portable_lib` sets it, but only in programs that import it. Imports nothing.
    """
    try:
        spec = importlib.util.find_spec("openvino")
    except (ImportError, ValueError):
        spec = None
    folders = (spec and spec.submodule_search_locations) or ()
    found = [path for folder in folders for path in Path(folder, "libs").glob("libopenvino_c.so*")]
    return {"OPENVINO_LIB_PATH": str(min(found))} if found else {}
